"""Encoder-decoders of others: our logits and tokens are theirs."""

import random
from pathlib import Path

import pytest
import torch
import transformers
from hf_models import LOGITS, NUM_LONG, VOCAB, converted, furthest, greedy, made, made_model, their_greedy, token_rows
from seq2seq_kinds import SEQ2SEQ
from tokenizer_directories import OLDER, reference, write

from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.t5 import sizes
from weft_export.graphs.answering import Row

LENGTHS = (7, 1, 23, 12)


def check(kind, seed, directory, new_tokens):
    """Hold one random model to transformers: whole targets beside other sources, and greedy tokens of each."""
    theirs = made(kind, seed, directory, max_shard_size="50KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=80)
    # An end token closes a source, as the model's own tokenizer would.
    sources = [torch.tensor([*row[:-1], theirs.config.eos_token_id]) for row in token_rows(VOCAB, LENGTHS, seed)]
    (target,) = token_rows(VOCAB, (40,), seed)
    check_logits(theirs, ours, sources, torch.tensor([[ours.text.start_id, *target]]))

    expected = [their_greedy(theirs, {"input_ids": source[None]}, new_tokens) for source in sources]
    asked = [Row(source, [ours.text.start_id]) for source in sources]
    assert expected == greedy(ours, asked, new_tokens)


def check_logits(theirs, ours, sources, target):
    """Compare the logits of a target for each source; ours lie padded in one batch, theirs alone."""
    lengths = torch.tensor([len(source) for source in sources], dtype=torch.int32)
    padded = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True)
    with torch.inference_mode():
        together = ours.model.decode(target.expand(len(sources), -1), padded, lengths)
        for source, actual in zip(sources, together, strict=True):
            expected = theirs(input_ids=source[None], decoder_input_ids=target).logits[0]
            assert LOGITS >= furthest(actual, expected)


@pytest.mark.parametrize("kind", SEQ2SEQ, ids=lambda kind: kind.name)
def test_a_translator_writes_what_transformers_writes(kind, tmp_path):
    """Logits within 1e-4 at every place, and the same greedy tokens for sources of other lengths in one batch."""
    check(kind, 0, tmp_path, 20)


SAVED = {
    "byt5": ["Wörter, 漢字 🎉", "<extra_id_0> a", "x", "two\nlines  "],
    "madlad": ["<2de> a house", "<2fr> a house", "two  <2de> words"],
}


@pytest.mark.parametrize("name", SAVED)
def test_texts_are_answered_as_they_are_by_what_transformers_saved(name, tmp_path):
    """ByT5 has no file of pieces; MADLAD's languages are tokens. From text to text, as generate() and its tokenizer."""
    directory = write(tmp_path / "tokenizer", *OLDER[name]())
    tokenizer = reference(directory)
    row = next(each for each in SEQ2SEQ if each.name == "t5").draw(random.Random(1))
    ids = {key: getattr(tokenizer, key) for key in ("pad_token_id", "eos_token_id")}
    config = transformers.T5Config(**row | ids | {"vocab_size": len(tokenizer), "decoder_start_token_id": 0})
    transformers.set_seed(1)
    theirs = made_model(transformers.T5ForConditionalGeneration, config, tmp_path / "saved", 1.0)
    tokenizer.save_pretrained(tmp_path / "saved")

    ours = converted(tmp_path / "saved", max_tokens=80)
    own = tokenizer_of(name, ours.files[ours.text.source_tokenizer])
    texts = SAVED[name]
    sources = [tokenizer(text, return_tensors="pt").input_ids for text in texts]
    assert [each[0].tolist() for each in sources] == [own.encode(text).ids for text in texts]
    expected = [their_greedy(theirs, {"input_ids": each}, 24) for each in sources]
    asked = [Row(each[0], [ours.text.start_id]) for each in sources]
    assert expected == greedy(ours, asked, 24)


@pytest.mark.parametrize(
    "config",
    [transformers.T5Config(), transformers.MT5Config(), transformers.UMT5Config()],
    ids=lambda each: each.model_type,
)
def test_what_a_config_leaves_out_is_what_its_class_says(config):
    """T5 and mT5 have other layers, and other functions in them."""
    named = ("model_type", "vocab_size", "d_model", "d_kv", "d_ff", "num_heads")
    fields = Fields({name: getattr(config, name) for name in named})
    ours = sizes(HfCheckpoint(Path(), fields, Generation(), frozenset()))

    assert config.num_layers == ours.num_encoder_layers == ours.num_decoder_layers
    assert config.is_gated_act == ours.gated
    assert {"relu": "relu", "gelu_new": "gelu_tanh"}[config.dense_act_fn] == ours.activation


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", SEQ2SEQ, ids=lambda kind: kind.name)
def test_so_do_random_translators(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path, 64)
