"""NomicBERT's config.json: what its class takes, and what its authors' files have besides."""

import json
from pathlib import Path

import pytest
import transformers

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.nomic import sizes
from weft_export.errors import CheckpointError

# What nomic-embed-text-v1.5 says, whose sizes are those that the class has.
RELEASED = {
    "activation_function": "swiglu", "causal": False, "dense_seq_output": True, "fused_bias_fc": True,
    "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
    "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12, "n_positions": 8192, "pad_vocab_size_multiple": 64,
    "parallel_block": False, "prenorm": False, "qkv_proj_bias": False, "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None, "scale_attn_weights": True, "type_vocab_size": 2, "use_rms_norm": False,
    "use_xentropy": True, "vocab_size": 30528, "resid_pdrop": 0.0, "summary_first_dropout": 0.0,
}  # fmt: skip


def read(given):
    """The sizes of a tagger of two labels; all fields are held to account."""
    hf = HfCheckpoint(Path(), Fields({"id2label": {"0": "a", "1": "b"}, **given}), Generation(), frozenset())
    made = sizes(hf, tags=True)
    hf.fields.check_all_read()
    return made


def test_what_a_config_leaves_out_is_what_its_class_says():
    """A file that says nothing is read as one that says all; so is the authors' own, of the same sizes."""
    whole = json.loads(json.dumps(transformers.NomicBertConfig().to_dict()))
    assert read(whole) == read({}) == read(RELEASED)


@pytest.mark.parametrize(
    "other",
    [
        {"n_embd": 1024},
        {"n_layer": 6},
        {"rotary_emb_base": 10000},
        {"rotary_emb_interleaved": True},
        {"qkv_proj_bias": True},
        {"activation_function": "gelu"},
        {"prenorm": True},
        {"num_experts": 8},
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ],
    ids=str,
)
def test_a_field_that_says_another_thing_is_refused_by_its_name(other):
    """The class does not read its authors' fields, and would make another model. And it turns whole heads."""
    with pytest.raises(CheckpointError, match=next(iter(other))):
        read(RELEASED | other)
