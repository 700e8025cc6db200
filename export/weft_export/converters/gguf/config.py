"""config.json of the model that a GGUF file describes. Every key is used, known to change nothing, or refused."""

from typing import Any

import torch

from weft_export.converters.fields import Fields
from weft_export.converters.gguf.architectures import ARCHITECTURES, Architecture, Heads
from weft_export.converters.gguf.header import Header
from weft_export.converters.gguf.names import class_of
from weft_export.converters.gguf.weights import read_place
from weft_export.errors import CheckpointError

_CALLED = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base_swa": "rope_local_base_freq",
}
# Of models that do not read a window, such as Qwen's, converters write the key as the directory has it.
_UNREAD = {"qwen2": ("attention.sliding_window",), "qwen3": ("attention.sliding_window",)}
# The largest Gemmas, known by their layers: their queries are scaled by the width for each head, and not by a head.
_SCALED = {("gemma2", 46), ("gemma3", 62)}
_ROPE_FREQS, _ROPE_LONG, _ROPE_SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
USED_HERE = (_ROPE_FREQS, _ROPE_LONG, _ROPE_SHORT)
"""Tensors that become fields of config.json."""


def architecture_of(header: Header) -> Architecture:
    """Return what a file holds. Raises CheckpointError where it is nothing that is read here."""
    class_of(header.values, header.paths[0])
    return ARCHITECTURES[header.values["general.architecture"]]


def config_of(header: Header) -> tuple[dict[str, Any], Heads]:
    """Return config.json, and the heads that weights are told apart by.

    Raises:
        CheckpointError: a key is missing, of another type, or not known here.
    """
    architecture, name = architecture_of(header), header.values["general.architecture"]
    path = header.paths[0]
    prefix = f"{name}."
    said = {key.removeprefix(prefix): value for key, value in header.values.items() if key.startswith(prefix)}
    fields = Fields({key: _one(value) for key, value in said.items()}, f"{path}: {name}")
    fields.skip("vocab_size", "rope.scaling.finetuned", "tensor_data_layout", *_UNREAD.get(name, ()))
    fields.only("attention.causal", True)
    for key in ("expert_count", "expert_used_count", "nextn_predict_layers"):
        fields.only(key, 0)
    width, num_layers = fields.whole("embedding_length"), fields.whole("block_count")
    heads = Heads(queries := fields.whole("attention.head_count"), fields.whole("attention.head_count_kv", queries))
    if not heads.queries or not heads.keys:
        raise fields.wrong("attention.head_count", "must be at least 1")
    head = fields.whole("attention.key_length", width // heads.queries)
    fields.only("attention.value_length", head)
    model_type, class_name = class_of(header.values, path)
    config: dict[str, Any] = {"model_type": model_type, "architectures": [class_name]}
    for key, theirs in {**_CALLED, **architecture.called}.items():
        if key in fields and key not in _UNREAD.get(name, ()):
            config[theirs] = fields.raw(key)
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    config["vocab_size"] = _place(header, "token_embd.weight").shape[0]
    if model_type != "gpt2":
        config |= _rotation(header, fields, name, head)
    config |= _of_kind(header, fields, name, (width, heads, num_layers))
    fields.check_all_read()
    return config, heads


def _of_kind(header: Header, fields: Fields, name: str, sizes: tuple[int, Heads, int]) -> dict[str, Any]:
    """Return what only some architectures have. A bias is there where the file has one."""
    width, heads, num_layers = sizes
    if name == "llama":
        biases = {"attention_bias": "attn_q", "mlp_bias": "ffn_up"}
        return {field: f"blk.0.{module}.bias" in header.tensors for field, module in biases.items()}
    if name == "starcoder2":
        return {"use_bias": "blk.0.ffn_up.bias" in header.tensors}
    if name not in {"gemma2", "gemma3"}:
        return {}
    head = fields.whole("attention.key_length", width // heads.queries)
    config: dict[str, Any] = {"head_dim": head, "query_pre_attn_scalar": head}
    if (name, num_layers) in _SCALED:
        config["query_pre_attn_scalar"] = width // heads.queries
    pattern = fields.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        config["layer_types"] = ["sliding_attention" if each else "full_attention" for each in pattern]
    elif pattern is not None:
        config["sliding_window_pattern"] = pattern
    return config


def _rotation(header: Header, fields: Fields, name: str, head: int) -> dict[str, Any]:
    """Return how heads are turned, as config.json has it."""
    theta = fields.number("rope.freq_base", 10000.0)
    turned = fields.whole("rope.dimension_count", head)
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    kind = fields.among("rope.scaling.type", {each: each for each in ("none", "linear", "yarn", "longrope")}, "none")
    original = fields.raw("rope.scaling.original_context_length")
    if original is not None:
        parameters["original_max_position_embeddings"] = original
    if kind in {"linear", "yarn"}:
        parameters |= {"rope_type": kind, "factor": fields.number("rope.scaling.factor")}
    else:
        fields.only("rope.scaling.factor", 0.0, 1.0)
    config: dict[str, Any] = {"rope_parameters": parameters}
    if _ROPE_FREQS in header.tensors:
        # Llama 3.1 divides each pair's frequency by a number of its own. So does LongRoPE with one list.
        factors = _numbers(header, _ROPE_FREQS)
        if kind != "none":
            raise fields.wrong("rope.scaling.type", f"cannot stand beside {_ROPE_FREQS}")
        parameters |= {"rope_type": "longrope", "short_factor": factors, "long_factor": factors}
        parameters |= {"attention_factor": 1.0, "original_max_position_embeddings": fields.raw("context_length")}
    elif _ROPE_LONG in header.tensors:
        parameters |= {"rope_type": "longrope", "long_factor": _numbers(header, _ROPE_LONG)}
        parameters |= {"short_factor": _numbers(header, _ROPE_SHORT)}
        parameters |= {"attention_factor": fields.number("rope.scaling.attn_factor", 1.0)}
        config["original_max_position_embeddings"] = original
    elif kind == "longrope":
        raise fields.wrong("rope.scaling.type", f"needs the tensor {_ROPE_LONG}")
    if turned != head:
        parameters["partial_rotary_factor"] = turned / head
    if name == "gemma3":
        near = {"rope_type": "default", "rope_theta": fields.number("rope.freq_base_swa", 10000.0)}
        config["rope_parameters"] = {"full_attention": parameters, "sliding_attention": near}
    return config


def _one(value: object) -> object:
    """Return what a list says for all layers, where it says one thing."""
    if isinstance(value, list) and value and not isinstance(value[0], bool) and all(each == value[0] for each in value):
        return value[0]
    return value


def _place(header: Header, name: str) -> Any:
    if name not in header.tensors:
        raise CheckpointError(f"{header.paths[0]} has no tensor {name}")
    return header.tensors[name]


def _numbers(header: Header, name: str) -> list[float]:
    """Return a small tensor as a list."""
    place = _place(header, name)
    if len(place.shape) != 1 or place.shape[0] > 2**16:
        raise CheckpointError(f"{header.paths[0]}: the tensor {name} has the shape {list(place.shape)}")
    return [float(each) for each in read_place(place).to(torch.float64)]
