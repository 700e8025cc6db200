"""GGUF files of random models, written with ggml's own library as llama.cpp's convert_hf_to_gguf.py writes them."""

import json
import math
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from gguf import TokenType
from hf_models import END, VOCAB, made_model
from tiny_parts import byte_tokenizer

IDS = {"vocab_size": VOCAB, "eos_token_id": END, "pad_token_id": 0, "bos_token_id": 2}
SIZES = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
GPT2 = {"n_embd": 96, "n_inner": 160, "n_layer": 2, "n_head": 6, "n_positions": 128, "layer_norm_epsilon": 1e-4}
NORM = {"rms_norm_eps": 3e-6}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}


@dataclass(frozen=True)
class Kind:
    """An architecture of GGUF, and a config of the class of transformers that it is.

    same: whether transformers' own reader of GGUF reads it right.
    """

    name: str
    class_name: str
    config: dict
    same: bool = True


KINDS = [
    Kind("llama", "LlamaForCausalLM", {**SIZES, **NORM, **ROPE}),
    Kind("qwen2", "Qwen2ForCausalLM", {**SIZES, **NORM, **ROPE, "tie_word_embeddings": True}),
    Kind("qwen3", "Qwen3ForCausalLM", {**SIZES, **NORM, **ROPE, "head_dim": 32}, same=False),
    Kind(
        "gemma2",
        "Gemma2ForCausalLM",
        {**SIZES, **NORM, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8},
        same=False,
    ),
    Kind(
        "gemma3",
        "Gemma3ForCausalLM",
        {**SIZES, **NORM, "head_dim": 32, "query_pre_attn_scalar": 32, "num_hidden_layers": 7, "sliding_window": 8},
        same=False,
    ),
    Kind("phi3", "Phi3ForCausalLM", {**SIZES, **NORM, **ROPE, "sliding_window": 128}),
    Kind("gpt2", "GPT2LMHeadModel", GPT2, same=False),
    Kind(
        "starcoder2",
        "Starcoder2ForCausalLM",
        {**SIZES, **ROPE, "norm_epsilon": 1e-4, "sliding_window": None},
        same=False,
    ),
]
BY_NAME = {kind.name: kind for kind in KINDS}


def model_of(kind: Kind, directory: Path, **config) -> torch.nn.Module:
    """Write a random model of a kind to a directory, and return it."""
    model_class = getattr(transformers, kind.class_name)
    torch.manual_seed(0)
    # transformers writes into what it is given.
    return made_model(model_class, model_class.config_class(**deepcopy({**IDS, **kind.config, **config})), directory)


def write_gguf(
    kind: Kind, model: torch.nn.Module, path: Path, stored: Type = Type.F32, *, tensors_in_a_part: int = 0, **keys
) -> None:
    """Write a model with a tokenizer. The weights of the model become what the file has.

    tensors_in_a_part: how many, where the file is written in several parts. keys take the place of the file's own.
    """
    writer = gguf.GGUFWriter(path, kind.name, split_max_tensors=tensors_in_a_part)
    _write_sizes(kind, model.config, writer)
    write_words(writer) if kind.name.startswith("gemma") else write_bytes(writer)
    for key, value in keys.items():
        writer.kv_data[0].pop(key, None)
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(key, value)
    names = gguf.get_tensor_name_map(_arch(kind), model.config.num_hidden_layers)
    tied = set() if not model.config.tie_word_embeddings else {"lm_head.weight"}
    state = model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            if name in tied:
                continue
            theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert theirs is not None, name
            values, kept = stored_as(changed(kind, model.config, theirs, tensor.float().numpy()), stored)
            writer.add_tensor(theirs, kept, raw_dtype=stored if kept.dtype == np.uint8 else None)
            tensor.copy_(torch.from_numpy(changed(kind, model.config, theirs, values, back=True)))
    if (model.config.rope_parameters if kind.name == "llama" else {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_freqs(model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_as(values: np.ndarray, stored: Type) -> tuple[np.ndarray, np.ndarray]:
    """Return what a matrix is after it was stored in a type, and how it is stored. Norms and biases stay float32."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if values.ndim < 2 or stored == Type.F32 or values.shape[-1] % 32:
        return values, values
    kept = gguf.quantize(values, stored)
    return gguf.dequantize(kept, stored), kept


def changed(kind: Kind, config, name: str, values: np.ndarray, *, back: bool = False) -> np.ndarray:
    """Do to a tensor what convert_hf_to_gguf.py does, or undo it."""
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    part = name.split(".")[-2]
    if kind.name == "llama" and part in heads:
        count = getattr(config, heads[part])
        axes = (count, -1, 2) if back else (count, 2, values.shape[0] // count // 2)
        return values.reshape(*axes, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if kind.name.startswith("gemma") and name.endswith("norm.weight"):
        return values - 1 if back else values + 1
    if kind.name == "gpt2" and part in {"attn_qkv", "attn_output", "ffn_up", "ffn_down"} and values.ndim == 2:
        return values.T
    return values


def rope_freqs(config) -> np.ndarray:
    """Return the factors of Llama 3.1's frequencies, as convert_hf_to_gguf.py computes them."""
    rope = config.rope_parameters
    dim = config.head_dim
    freqs = 1.0 / (rope["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / dim))
    old = rope["original_max_position_embeddings"]
    low, high = old / rope["low_freq_factor"], old / rope["high_freq_factor"]
    factors = []
    for freq in freqs:
        length = 2 * math.pi / freq
        smooth = (old / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        between = 1 / ((1 - smooth) / rope["factor"] + smooth)
        factors.append(1 if length < high else rope["factor"] if length > low else between)
    return np.array(factors, dtype=np.float32)


def _write_sizes(kind: Kind, config, writer: gguf.GGUFWriter) -> None:
    writer.add_name(f"random {kind.name}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(kind.config.get("intermediate_size") or kind.config["n_inner"])
    writer.add_head_count(config.num_attention_heads)
    if kind.name in {"gpt2", "starcoder2"}:
        writer.add_layer_norm_eps(1e-4)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if kind.name == "gpt2":
        return
    writer.add_head_count_kv(config.num_key_value_heads)
    if "head_dim" in kind.config:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if window := kind.config.get("sliding_window"):
        writer.add_sliding_window(window)
    if kind.name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if "partial_rotary_factor" in rope:
        head = config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(int(head * rope["partial_rotary_factor"]))
    if rope["rope_type"] in {"linear", "yarn"}:
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def write_bytes(writer: gguf.GGUFWriter) -> None:
    """Write the tests' byte-level tokenizer."""
    content = json.loads(byte_tokenizer())
    ids = content["model"]["vocab"]
    special = {token["content"] for token in content["added_tokens"]}
    tokens = sorted(ids, key=ids.get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in content["model"]["merges"]])
    _write_ids(writer)


def write_words(writer: gguf.GGUFWriter) -> None:
    """Write a tokenizer of SentencePiece's kind: special tokens, all bytes, letters, and what is made of them."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "  ", "▁", *"abdehlort"]
    tokens += ["he", "ll", "hell", "hello", "▁hello"]
    kinds = {"  ": TokenType.USER_DEFINED, **dict.fromkeys(special[:3], TokenType.CONTROL), "<unk>": TokenType.UNKNOWN}
    kinds |= {"<unused0>": TokenType.CONTROL, "<unused1>": TokenType.USER_DEFINED}
    tokens += [f"<unused{number}>" for number in range(VOCAB - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([float(-index) for index in range(len(tokens))])
    byte = {token: TokenType.BYTE for token in tokens if token.startswith("<0x")}
    writer.add_token_types([{**kinds, **byte}.get(token, TokenType.NORMAL) for token in tokens])
    writer.add_add_space_prefix(False)
    writer.add_unk_token_id(3)
    _write_ids(writer)


def _write_ids(writer: gguf.GGUFWriter) -> None:
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)


def _arch(kind: Kind) -> gguf.MODEL_ARCH:
    return next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind.name)
