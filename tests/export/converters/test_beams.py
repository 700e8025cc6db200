"""Beam search as it is served equals transformers' generate(): tokens, scores and order, on random models."""

import asyncio
import random
from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import pytest
import torch
import transformers
from decoder_kinds import DECODERS
from hf_models import made, token_rows
from seq2seq_kinds import SEQ2SEQ

from loaded import Loaded, ask
from plain_beams import FAR, search
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

KINDS = {kind.name: kind for kind in (*SEQ2SEQ, *DECODERS)}
STOPPING = {
    False: common_pb2.EARLY_STOPPING_HEURISTIC,
    True: common_pb2.EARLY_STOPPING_FULL,
    "never": common_pb2.EARLY_STOPPING_NEVER,
}
NEAR = 1e-5
"""Two scores that are nearer than this may change places by rounding."""
SCORE = 1e-5
ROUNDINGS, UNIT = 16, 2**-24
"""By how many roundings of float32 each log-probability of ours may differ from theirs. See `rounding`."""
PENALTIES = (-0.5, 0.0, 0.6, 1.0, 2.0)


def settings(seed, num):
    """Random settings of searches, among them each early stopping with each number of beams."""
    rng = random.Random(seed)
    pairs = list(product((2, 3, 4, 5, 8), STOPPING))
    rng.shuffle(pairs)
    drawn = []
    for index in range(num):
        num_beams, stopping = pairs[index % len(pairs)]
        max_new = rng.choice([1, 2, 5, 9, 14])
        drawn.append(
            {
                "num_beams": num_beams,
                "early_stopping": stopping,
                "length_penalty": rng.choice(PENALTIES),
                "max_new_tokens": max_new,
                "min_new_tokens": rng.choice([0, 0, rng.randrange(max_new + 1), max_new]),
                "num_return_sequences": rng.randrange(1, num_beams + 1),
            }
        )
    return drawn


def ruled(asked, end_id, rng):
    """Settings of a search with rules too, some of each kind, as generate() has them."""
    rules = {
        "repetition_penalty": rng.choice([0.8, 1.3]),
        "no_repeat_ngram_size": rng.choice([1, 2]),
        "suppress_tokens": [rng.randrange(4, 300) for _ in range(20)],
        "forced_eos_token_id": end_id,
        "eos_token_id": [end_id, rng.randrange(4, 300)],
    }
    chosen = {name: rules[name] for name in rng.sample(sorted(rules), 3)}
    if "eos_token_id" in chosen:
        # A search looks at a third more candidates with another end token.
        asked = asked | {"num_beams": min(asked["num_beams"], 5)}
        asked["num_return_sequences"] = min(asked["num_return_sequences"], asked["num_beams"])
    return asked | chosen


def processors(asked):
    """The processors of generate() for those settings, in its order."""
    made = {
        "repetition_penalty": transformers.RepetitionPenaltyLogitsProcessor,
        "no_repeat_ngram_size": transformers.NoRepeatNGramLogitsProcessor,
        "suppress_tokens": transformers.SuppressTokensLogitsProcessor,
    }
    return [processor(asked[name]) for name, processor in made.items() if name in asked]


def fed(model):
    """What generate() forces behind the start token, and counts as part of an answer."""
    forced = model.generation_config.forced_bos_token_id
    return [] if forced is None else [forced]


def theirs(model, ids, asked):
    """What generate() answers: (new tokens, score), best first."""
    num_fed = len(fed(model))
    longer = {name: asked[name] + num_fed for name in ("max_new_tokens", "min_new_tokens")}
    with torch.inference_mode():
        given = torch.tensor([ids])
        out = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            pad_token_id=model.config.pad_token_id,
            **({"forced_eos_token_id": None} | asked | longer),
        )
    skipped = 1 + num_fed if model.config.is_encoder_decoder else len(ids)
    rows = []
    for row, score in zip(out.sequences[:, skipped:].tolist(), out.sequences_scores.tolist(), strict=True):
        # Shorter ones are filled up.
        ends = [place for place, token in enumerate(row) if token in asked["eos_token_id"]]
        tokens = row[: ends[0] + 1] if ends else row
        # A beam that has not begun repeats a better one where a token is forced. We give no such answer.
        if score * (num_fed + len(tokens)) ** asked["length_penalty"] > FAR / 2:
            rows.append((tokens, score))
    return rows


def log_probs(model, ids, token_ids):
    """The model's own log-probabilities behind `token_ids`, and behind each beginning of these: [1 + tokens, vocab]."""
    with torch.inference_mode():
        if model.config.is_encoder_decoder:
            start = [model.generation_config.decoder_start_token_id, *fed(model), *token_ids]
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([start])).logits
        else:
            logits = model(input_ids=torch.tensor([[*ids, *token_ids]])).logits
    return logits[0, -1 - len(token_ids) :].log_softmax(-1).numpy()


def rounding(num_tokens, own, asked):
    """How far a score may be from generate()'s. `own` are all log-probabilities at each step of the answer.

    Both sum float32 numbers, in other orders. Each log-probability is rounded by a share of the largest of its row: it
    is a difference of numbers of that size. docs/decisions/parity-by-size.md says what was measured.
    """
    return ROUNDINGS * UNIT * float(-own.min()) * num_tokens ** (1 - asked["length_penalty"])


def margin(model, ids, asked):
    """How close the closest decision of a search was: by the plain search over the model's own log-probabilities."""
    rules = processors(asked)
    given = ids
    if model.config.is_encoder_decoder:
        given = [model.generation_config.decoder_start_token_id, *fed(model)]

    def log_probs_of(token_ids):
        scores = torch.tensor(log_probs(model, ids, token_ids)[-1:])
        for rule in rules:
            scores = rule(torch.tensor([[*given, *token_ids]]), scores)
        return scores[0].numpy()

    return search(
        log_probs_of,
        asked["num_beams"],
        end_ids=asked["eos_token_id"],
        forced_end=asked.get("forced_eos_token_id"),
        max_new=asked["max_new_tokens"],
        min_new=asked["min_new_tokens"],
        length_penalty=asked["length_penalty"],
        early_stopping=asked["early_stopping"],
        num_fed=len(fed(model)),
    ).margin


def proto_of(asked, prefix=()):
    """The same search as a request has it. Its answers begin with the prefix."""
    beams = common_pb2.Beams(
        num_beams=asked["num_beams"],
        length_penalty=asked["length_penalty"],
        early_stopping=STOPPING[asked["early_stopping"]],
    )
    penalties = {
        "repetition": asked.get("repetition_penalty"),
        "no_repeat_ngram_size": asked.get("no_repeat_ngram_size"),
    }
    return common_pb2.Decoding(
        max_new_tokens=asked["max_new_tokens"],
        min_new_tokens=asked["min_new_tokens"],
        num_outputs=asked["num_return_sequences"],
        beams=beams,
        penalties=common_pb2.Penalties(**penalties),
        suppressed=common_pb2.TokenSet(ids=asked.get("suppress_tokens", [])),
        stop_token_ids=common_pb2.TokenSet(ids=asked["eos_token_id"][1:]),
        forced_last_id=asked.get("forced_eos_token_id"),
        prefix=common_pb2.Phrase(token_ids=common_pb2.TokenIds(ids=prefix)) if prefix else None,
    )


async def ours(bundle, requests, prefix=()):
    """What a server answers when all come at once, beside a greedy request and a draw for each.

    Answers of searches begin with the prefix.
    """
    async with Loaded(bundle, slots=24, lanes=1) as model:

        async def answer(ids, decoding):
            token_ids = common_pb2.TokenIds(ids=ids)
            return (await ask(model, token_ids=token_ids, decoding=decoding, return_scores=True)).completion

        crowd = [common_pb2.Decoding(greedy={}), common_pb2.Decoding(sampling={"seed": 1})]
        searches = [answer(ids, proto_of(asked, prefix)) for ids, asked in requests]
        beside = [answer(ids, decoding) for ids, _ in requests for decoding in crowd]
        return (await asyncio.gather(*searches, *beside))[: len(searches)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export a random model of a kind: the model, and its bundle. Some are asked by two tests."""

    @cache
    def export(name, seed, forced_first=None):
        folder = tmp_path_factory.mktemp(name)
        model = made(KINDS[name], seed, folder / "model")
        model.generation_config.forced_eos_token_id = None
        if forced_first is not None:
            model.generation_config.forced_bos_token_id = forced_first
            model.generation_config.save_pretrained(folder / "model")
        bundle = folder / "bundle" / name / "1"
        options = ExportOptions() if model.config.is_encoder_decoder else ExportOptions(max_tokens=48)
        # The graphs that explain and score are not asked.
        export_checkpoint(folder / "model", bundle, replace(options, no_explain=True, no_score=True))
        return model, bundle

    return export


def verify(model, bundle, seed, num):
    """Compare `num` searches of a model, a third with rules, with those of its bundle. Returns how many nearly tied.

    If generate() forces its first token, our decoder is fed this as a prefix.
    """
    rows = token_rows(model.config.vocab_size, tuple(3 + index % 9 for index in range(num)), seed)
    rng = random.Random(seed)
    end_id = model.config.eos_token_id
    asked = [{"eos_token_id": [end_id]} | each for each in settings(seed, num)]
    asked = [ruled(each, end_id, rng) if index % 3 == 0 else each for index, each in enumerate(asked)]
    if model.config.model_type == "m2m_100":
        # It gives a token of padding, wherever it stands, the first position of all. No trained model writes one.
        padding = [model.config.pad_token_id]
        asked = [each | {"suppress_tokens": [*each.get("suppress_tokens", ()), *padding]} for each in asked]
    requests = list(zip(rows, asked, strict=True))
    num_near, num_fed = 0, len(fed(model))
    for (ids, asked), found in zip(requests, asyncio.run(ours(bundle, requests)), strict=True):
        outputs = [found, *found.others]
        if margin(model, ids, asked) < NEAR:
            # Another of two equals may have been followed. Its score is that of its tokens all the same: see below.
            num_near += 1
        else:
            expected = theirs(model, ids, asked)
            assert [tokens for tokens, _ in expected] == [list(one.token_ids) for one in outputs], asked
            for (tokens, score), one in zip(expected, outputs, strict=True):
                rounded = rounding(num_fed + len(tokens), log_probs(model, ids, tokens[:-1]), asked)
                assert pytest.approx(score, rel=0, abs=rounded) == one.score
        for one in outputs:
            own = log_probs(model, ids, list(one.token_ids[:-1]))
            own = own[range(len(own)), list(one.token_ids)]
            assert pytest.approx(own.tolist(), rel=1e-4, abs=1e-4) == list(one.token_log_probs)
            if not processors(asked) and "forced_eos_token_id" not in asked:
                total = one.score * (num_fed + len(one.token_ids)) ** asked["length_penalty"]
                assert pytest.approx(total, rel=1e-4, abs=1e-4) == own.sum()
                ended = one.token_ids[-1] in asked["eos_token_id"]
                reason = common_pb2.FINISH_REASON_STOP if ended else common_pb2.FINISH_REASON_LENGTH
                assert reason == one.finish_reason
    return num_near


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["t5", "llama", *(pytest.param(each, marks=pytest.mark.long) for each in ("gpt2", "marian"))]
)
def test_searches_are_those_of_generate(name, exported):
    """Tokens, scores and order, in a crowd: 2 to 8 beams, all kinds of stopping, lengths and penalties."""
    assert verify(*exported(name, 1), 1, 16) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bart", pytest.param("m2m_100", marks=pytest.mark.long)])
def test_a_forced_first_token_counts_in_the_length_as_in_generate(name, exported):
    """It is no part of our answers, and their scores are those of generate() all the same."""
    assert verify(*exported(name, 1, forced_first=77), 1, 16) <= 3


def behind(model, ids, prefix, asked):
    """What generate() answers whose decoder is given a prefix: (tokens of the prefix and new ones, score)."""
    given = {"input_ids": torch.tensor([[*ids, *prefix]])}
    if model.config.is_encoder_decoder:
        start = [model.generation_config.decoder_start_token_id, *prefix]
        given = {"input_ids": torch.tensor([ids]), "decoder_input_ids": torch.tensor([start])}
    with torch.inference_mode():
        out = model.generate(
            **given,
            attention_mask=torch.ones_like(given["input_ids"]),
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            pad_token_id=model.config.pad_token_id,
            **asked | {"max_new_tokens": asked["max_new_tokens"] - len(prefix)},
        )
    skipped = 1 if model.config.is_encoder_decoder else len(ids)
    rows = [
        row[: next((place + 1 for place, token in enumerate(row) if token in asked["eos_token_id"]), len(row))]
        for row in out.sequences[:, skipped:].tolist()
    ]
    return list(zip(rows, out.sequences_scores.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "llama", pytest.param("marian", marks=pytest.mark.long)])
def test_a_prefix_counts_in_no_score(name, exported):
    """As with generate(), whose decoder is given it: its tokens are neither in the sum nor in the length."""
    model, bundle = exported(name, 1)
    prefix, requests = token_rows(model.config.vocab_size, (3,), 9)[0], []
    for ids, length_penalty in product(token_rows(model.config.vocab_size, tuple(range(3, 11)), 2), (0.5, 2.0)):
        asked = {
            "num_beams": 4,
            "num_return_sequences": 4,
            "length_penalty": length_penalty,
            "early_stopping": "never",
            "max_new_tokens": 15,
            "min_new_tokens": 0,
            "eos_token_id": [model.config.eos_token_id],
        }
        # Tokens that are probable at different lengths end answers, so that lengths decide.
        likely = {token for tokens, _ in behind(model, ids, prefix, asked) for token in tokens[4::2]}
        ends = sorted(likely - {*prefix, model.config.eos_token_id})[:8]
        requests.append((ids, asked | {"eos_token_id": [model.config.eos_token_id, *ends]}))
    answers = asyncio.run(ours(bundle, requests, prefix))
    for (ids, asked), found in zip(requests, answers, strict=True):
        expected = behind(model, ids, prefix, asked)
        scores = [score for _, score in expected]
        if min(one - other for one, other in pairwise(scores)) < NEAR:
            continue
        outputs = [found, *found.others]
        assert [tokens for tokens, _ in expected] == [list(one.token_ids) for one in outputs], asked
        assert [pytest.approx(score, rel=SCORE, abs=SCORE) for score in scores] == [one.score for one in outputs]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(KINDS))
def test_searches_are_those_of_generate_for_every_kind(name, seed, exported):
    """The broad matrix: each kind that writes text, in random sizes."""
    assert verify(*exported(name, seed + 10), seed + 10, 60) <= 15
