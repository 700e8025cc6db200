"""A config.json with one field changed: every field that its class knows, set to values that it may have."""

import copy
import dataclasses

from weft_export.converters.fields import HARMLESS

ABSENT = object()
# They say what code returns, or how it is called.
_PASSED_OVER = {
    "architectures",
    "model_type",
    "is_encoder_decoder",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "torchscript",
}
_PASSED_OVER |= {
    "torchscript",
    "return_dict",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
}
_PARTS = ("text_config", "vision_config", "encoder", "decoder")
# What is another field today, or belongs to a part.
_OLDER = {"rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_pct", "rotary_emb_base", "n_embed"}
_OLDER |= {"rope_local_base_freq", "sliding_window_pattern", "layer_types", "dense_act_fn", "is_gated_act"}
_OLDER |= {"conv_kernel_size"}
_IN_ROTATION = {"rope_type", "rope_theta", "factor", "attention_factor", "beta_fast", "beta_slow", "truncate", "mscale"}
_IN_ROTATION |= {"mscale_all_dim", "original_max_position_embeddings", "partial_rotary_factor", "low_freq_factor"}
_ROTATIONS = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0},
    {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 500.0},
    {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 16, "rope_theta": 500.0},
    {"type": "linear", "factor": 3.0},
]
_ACTIVATIONS = ["relu", "gelu_new", "quick_gelu", "tanh", "mish"]
_WORDS = ["relu", "gated-gelu", "gated-silu", "basic", "bottleneck", "mean", "cls", "none", "layer_norm", "c2p", "p2c"]
_WORDS += ["relative_key", "absolute", "regression", "multi_label_classification"]


def changes(config):
    """Each place in a config of transformers, as the names that lead to it, with each other value for it."""
    given = config.to_dict()
    places = [((name,), given.get(name)) for name in _names_in(type(config), given)]
    for part in _PARTS:
        inner = given.get(part)
        if isinstance(inner, dict):
            places += [((part, name), inner.get(name)) for name in _names_in(type(getattr(config, part)), inner)]
    rotations = {("rope_parameters",): given.get("rope_parameters") or {}}
    rotations |= {("rope_parameters", name): value for name, value in rotations[("rope_parameters",)].items()}
    for path, inner in rotations.items():
        if isinstance(inner, dict) and "rope_type" in inner:
            places += [((*path, name), inner.get(name)) for name in sorted({*_IN_ROTATION, *inner})]
    return [(path, other) for path, value in places for other in others(path[-1], value)]


def changed(given, path, value):
    """A copy of a config.json with another value at a place, or with none."""
    other = copy.deepcopy(given)
    inner = other
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner.pop(path[-1], None)
    if value is not ABSENT:
        inner[path[-1]] = value
    return other


def _names_in(config_class, given):
    known = {field.name for field in dataclasses.fields(config_class)} | set(config_class.attribute_map)
    return sorted({*known, *given, *_OLDER, *HARMLESS} - _PASSED_OVER)


def others(name, value):
    """Values for a field that has one. What it cannot have is left to transformers to refuse."""
    if name in ("rope_parameters", "rope_scaling"):
        return [ABSENT, None, *_ROTATIONS]
    if value is None:
        return [ABSENT, True] if name in HARMLESS else [ABSENT, True, False, 2, 0.5, "gelu"]
    if isinstance(value, list) and value:
        return [ABSENT, None, value[::-1], value[1:], [*value, value[0]], [value[0]] * len(value)]
    of_type = {
        bool: lambda: [not value],
        int: lambda: [0, 1, value + 1, 2 * value],
        float: lambda: [0.0, 2.5 * value + 0.01],
        str: lambda: _ACTIVATIONS if "act" in name else _WORDS,
    }
    return [ABSENT, None, *of_type.get(type(value), list)()]
