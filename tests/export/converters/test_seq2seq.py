"""Encoder-decoders of others: our logits and tokens are theirs."""

from pathlib import Path

import pytest
import torch
import transformers
from hf_models import LOGITS, NUM_LONG, VOCAB, converted, furthest, greedy, made, their_greedy, token_rows
from seq2seq_kinds import SEQ2SEQ

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


@pytest.mark.parametrize(
    "config", [transformers.T5Config(), transformers.MT5Config()], ids=lambda each: each.model_type
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
