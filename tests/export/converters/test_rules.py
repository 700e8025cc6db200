"""Rules as they are served equal transformers' generate(): greedy and by beams, several at a time, on random models."""

import asyncio
import random
from dataclasses import replace

import pytest
import torch
from decoder_kinds import DECODERS
from hf_models import END, PAD, made, token_rows
from seq2seq_kinds import SEQ2SEQ

from loaded import Loaded, ask
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

KINDS = {kind.name: kind for kind in (*SEQ2SEQ, *DECODERS)}


def phrase(tokens):
    """A phrase of tokens."""
    return common_pb2.Phrase(token_ids=common_pb2.TokenIds(ids=tokens))


def token_set(tokens):
    """A set of tokens."""
    return common_pb2.TokenSet(ids=tokens)


def settings(rng, vocab, *, has_source):
    """Random rules: as generate() takes them, and as a request has them."""
    words = [token for token in range(vocab) if token not in (END, PAD)]
    some = [rng.sample(words, 2) for _ in range(6)]
    penalty, size, added = rng.choice((0.6, 1.3, 3.0)), rng.randrange(1, 4), rng.choice((-3.0, 2.0))
    every = {
        "repetition_penalty": (penalty, {"penalties": {"repetition": penalty}}),
        "no_repeat_ngram_size": (size, {"penalties": {"no_repeat_ngram_size": size}}),
        "bad_words_ids": ([some[0], some[1][:1]], {"banned": [phrase(some[0]), phrase(some[1][:1])]}),
        "sequence_bias": (
            {tuple(some[2]): added, (some[3][0],): added},
            {"bias": [{"token_ids": {"ids": ids}, "bias": added} for ids in (some[2], some[3][:1])]},
        ),
        "suppress_tokens": (some[4], {"suppressed": token_set(some[4])}),
        "begin_suppress_tokens": (some[5], {"suppressed_first": token_set(some[5])}),
        "forced_bos_token_id": (words[7], {"forced_first_id": words[7]}),
        "forced_eos_token_id": (END, {"forced_last_id": END}),
        "exponential_decay_length_penalty": ((2, 1.2), {"length_decay": {"start": 2, "factor": 1.2}}),
        "encoder_repetition_penalty": (penalty, {"penalties": {"encoder_repetition": penalty}}),
        "encoder_no_repeat_ngram_size": (size, {"penalties": {"encoder_no_repeat_ngram_size": size}}),
    }
    if not has_source:
        every = {name: value for name, value in every.items() if not name.startswith(("encoder", "forced_bos"))}
    asked, decoding = {}, common_pb2.Decoding(max_new_tokens=12, min_new_tokens=3)
    for name in rng.sample(sorted(every), 3):
        asked[name], fields = every[name]
        decoding.MergeFrom(common_pb2.Decoding(**fields))
    if width := rng.choice((0, 3)):
        asked["num_beams"] = decoding.beams.num_beams = width
    return asked, decoding


def theirs(model, ids, asked):
    """The new tokens that generate() answers."""
    given = torch.tensor([ids])
    with torch.inference_mode():
        out = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            pad_token_id=PAD,
            max_new_tokens=12,
            min_new_tokens=3,
            **{"forced_eos_token_id": None, "num_beams": 1} | asked,
        )[0].tolist()
    new = out[1 if model.config.is_encoder_decoder else len(ids) :]
    return new[: new.index(END) + 1] if END in new else new


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["t5", "gpt2", pytest.param("marian", marks=pytest.mark.long), pytest.param("llama", marks=pytest.mark.long)],
)
def test_rules_are_those_of_generate(name, tmp_path):
    """Three rules at a time, in a crowd. Few decisions of random models are so close that rounding decides them."""
    rng = random.Random(name)
    model = made(KINDS[name], 3, tmp_path / "model")
    model.generation_config.forced_eos_token_id = None
    has_source = model.config.is_encoder_decoder
    bundle = tmp_path / "bundle" / name / "1"
    options = ExportOptions() if has_source else ExportOptions(max_tokens=48)
    # The graphs that explain and score are not asked.
    export_checkpoint(tmp_path / "model", bundle, replace(options, no_explain=True, no_score=True))
    vocab = model.config.vocab_size
    rows = token_rows(vocab, tuple(3 + index % 9 for index in range(60)), 3)
    asked = [settings(rng, vocab, has_source=has_source) for _ in rows]

    async def ours():
        async with Loaded(bundle, slots=24, lanes=1) as loaded:
            return await asyncio.gather(
                *(
                    ask(loaded, token_ids=common_pb2.TokenIds(ids=ids), decoding=decoding)
                    for ids, (_, decoding) in zip(rows, asked, strict=True)
                )
            )

    answers = [list(answer.completion.token_ids) for answer in asyncio.run(ours())]
    expected = [theirs(model, ids, each) for ids, (each, _) in zip(rows, asked, strict=True)]
    differing = [
        (each, one, other) for one, other, (each, _) in zip(expected, answers, asked, strict=True) if one != other
    ]
    assert len(differing) <= 1, differing
