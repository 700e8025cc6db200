"""Decoder-only checkpoints of others: our logits and tokens are theirs."""

from pathlib import Path

import pytest
import torch
import transformers
from decoder_kinds import DECODERS
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, greedy, made, their_greedy, token_rows
from hybrid_kinds import GRANITE4, STATE_SPACES

from weft_export.converters.convert import converter_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.graphs.answering import Row

LENGTHS = (7, 1, 23, 12)
# How wide a network is inside, or one of many.
INSIDE = ("moe_intermediate_size", "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
# What a config cannot leave out.
LEAST = {"vocab_size": 300, "hidden_size": 2560, "num_attention_heads": 160, "num_hidden_layers": 1}
# What a class says where nothing is said does not fit these.
FITTING = {
    "gpt_neo": {"attention_types": [[["global"], 1]]},
    "gptj": {"rotary_dim": 16},
    "codegen": {"rotary_dim": 16},
    "lfm2": {"block_auto_adjust_ff_dim": False},
    "granitemoehybrid": {"layer_types": ["full_attention"]},
}


def check(kind, seed, directory, new_tokens):
    """Hold one random model to transformers: whole sequences, and greedy tokens of ragged rows in one batch."""
    theirs = made(kind, seed, directory, max_shard_size="50KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=96)
    vocab_size = theirs.config.get_text_config().vocab_size
    rows = token_rows(vocab_size, LENGTHS, seed)

    (longest,) = token_rows(vocab_size, (96,), seed)
    with torch.inference_mode():
        expected = theirs(torch.tensor([longest])).logits[0]
        actual = ours.model.decode(torch.tensor([longest]))[0]
    assert LOGITS >= furthest(actual, expected)

    expected = [their_greedy(theirs, {"input_ids": torch.tensor([row])}, new_tokens) for row in rows]
    assert expected == greedy(ours, [Row(None, list(row)) for row in rows], new_tokens)


@pytest.mark.parametrize("kind", [*DECODERS, *STATE_SPACES], ids=lambda kind: kind.name)
def test_a_decoder_writes_what_transformers_writes(kind, tmp_path):
    """Logits within 1e-4 at every place, and the same greedy tokens from prompts of other lengths in one batch.

    The longest row has 23 + 20 tokens, more than any window.
    """
    check(kind, 0, tmp_path, 20)


@pytest.mark.parametrize(("name", "released_as"), [("ernie4_5", "Ernie4_5_ForCausalLM")])
def test_a_decoder_is_read_by_the_name_that_its_makers_released_it_by(name, released_as, tmp_path):
    """The library goes by the model_type alone."""
    made(next(kind for kind in DECODERS if kind.name == name), 0, tmp_path)
    change_config(tmp_path, architectures=[released_as])
    tokens = torch.tensor(token_rows(100, (9,)))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        assert LOGITS >= furthest(converted(tmp_path).model.decode(tokens)[0], theirs(tokens).logits[0])


@torch.inference_mode()
@pytest.mark.parametrize("name", ["gemma2", "gpt_oss"])
def test_heads_look_where_transformers_says(name, tmp_path):
    """In each layer, with caps, windows and sinks: what `explain` shows."""
    theirs = made(next(kind for kind in DECODERS if kind.name == name), 0, tmp_path)
    theirs.set_attn_implementation("eager")
    ids = torch.tensor(token_rows(300, (23,)))
    expected = theirs(ids, output_attentions=True).attentions
    for layer, found in zip(expected, converted(tmp_path, max_tokens=96).model.attentions(ids), strict=True):
        assert torch.allclose(layer, found, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in DECODERS if kind is not GRANITE4], ids=lambda kind: kind.name)
def test_what_a_config_leaves_out_is_what_its_class_says(kind):
    """Sizes of heads, of what is inside, and of the context: some classes have numbers of their own."""
    least = LEAST | FITTING.get(kind.name, {})
    config = getattr(transformers, kind.architecture).config_class(**least)
    named = {config.attribute_map.get(name, name) for name in least}
    fields = {name: value for name, value in config.to_dict().items() if name in named}
    hf = HfCheckpoint(Path(), Fields(fields), Generation(), frozenset())
    ours = converter_of({"model_type": config.model_type}).sizes(hf)

    width, heads = LEAST["hidden_size"], LEAST["num_attention_heads"]
    # Falcon's heads share one of keys and values, whatever its number says.
    shared = 1 if kind.name == "falcon" else getattr(config, "num_key_value_heads", None) or heads
    inside = [getattr(config, name, None) for name in INSIDE]
    assert shared == ours.num_kv_heads
    assert (getattr(config, "head_dim", None) or width // heads) == ours.head_dim - (ours.padding or 0)
    assert next((each for each in inside if each), 4 * width) == ours.d_ff
    assert min(2048, getattr(config, "max_position_embeddings", 2048)) == ours.max_tokens


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", [*DECODERS, *STATE_SPACES], ids=lambda kind: kind.name)
def test_so_do_random_decoders(kind, seed, tmp_path):
    """The same law for twenty random configurations, and 64 tokens."""
    check(kind, seed, tmp_path, 64)
