"""The architectures of GGUF files that are read: what their tensors are called in a Hugging Face directory.

llama.cpp's convert_hf_to_gguf.py makes such files. It changes some weights on its way, which is undone here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import Tensor


@dataclass(frozen=True)
class Heads:
    """How many heads the queries of a model have, and how many its keys and values."""

    queries: int
    keys: int


Undo = Callable[[Tensor, Heads], Tensor]


@dataclass(frozen=True)
class Architecture:
    """One value of general.architecture.

    names: theirs by those of the file. {} stands for the number of a layer.
    undo: what is done to a tensor, by a pattern of its name in the file, with * for anything.
    called: fields of config.json by keys of the file, where they differ from the usual ones.
    tokenizers: the values of tokenizer.ggml.model that such a model can have.
    """

    names: Mapping[str, str]
    undo: Mapping[str, Undo] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)
    tokenizers: tuple[str, ...] = ("llama", "gpt2")

    def name_of(self, name: str) -> str:
        """Return what a tensor of the file is called in a directory; its own name where the table has none."""
        module, _, part = name.rpartition(".")
        first, _, rest = module.partition(".")
        number, _, rest = rest.partition(".")
        in_layer = first == "blk" and number.isdecimal()
        theirs = self.names.get(f"blk.{{}}.{rest}" if in_layer else module)
        return name if theirs is None else f"{theirs.format(number)}.{part}"

    def undone(self, name: str) -> Undo | None:
        """Return what is done to a tensor of the file, if anything is."""
        return next((undo for pattern, undo in self.undo.items() if fnmatchcase(name, pattern)), None)


def _by_halves(count: Callable[[Heads], int]) -> Undo:
    """Undo that the two numbers which turn together lie side by side; here they lie half a head apart."""

    def undo(rows: Tensor, heads: Heads) -> Tensor:
        return rows.view(count(heads), -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)

    return undo


def _layers(names: Mapping[str, str]) -> dict[str, str]:
    return {f"blk.{{}}.{ours}": f"model.layers.{{}}.{theirs}" for ours, theirs in names.items()}


_WORDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_ATTENTION = {
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
}
_GATED = {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
_HEAD_NORMS = {f"attn_{part}_norm": f"self_attn.{part}_norm" for part in "qk"}
_LLAMA = {**_WORDS, **_layers({**_ATTENTION, **_GATED, "ffn_norm": "post_attention_layernorm"})}
_SANDWICH = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GEMMA = {**_LLAMA, **_layers({**_SANDWICH, **_HEAD_NORMS})}
_GPT2 = {"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}

# The weights of Gemma's norms are stored there as they are, and in a directory as what they are above 1.
_ABOVE_ONE: Mapping[str, Undo] = {"*norm.weight": lambda weight, _: weight - 1.0}

ARCHITECTURES = {
    "llama": Architecture(
        _LLAMA,
        undo={
            "blk.*.attn_q.*": _by_halves(lambda heads: heads.queries),
            "blk.*.attn_k.*": _by_halves(lambda heads: heads.keys),
        },
    ),
    "qwen2": Architecture(_LLAMA, tokenizers=("gpt2",)),
    "qwen3": Architecture({**_LLAMA, **_layers(_HEAD_NORMS)}, tokenizers=("gpt2",)),
    "gemma2": Architecture(_GEMMA, _ABOVE_ONE, tokenizers=("llama",)),
    "gemma3": Architecture(_GEMMA, _ABOVE_ONE, tokenizers=("llama",)),
    "phi3": Architecture(
        {**_LLAMA, **_layers({"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"})},
    ),
    "gpt2": Architecture(
        {
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
            **{
                f"blk.{{}}.{ours}": f"transformer.h.{{}}.{theirs}"
                for ours, theirs in {**_GPT2, "attn_norm": "ln_1", "ffn_norm": "ln_2"}.items()
            },
        },
        # A directory has these matrices as [inputs, outputs].
        undo={f"blk.*.{module}.weight": lambda matrix, _: matrix.t() for module in _GPT2},
        called={
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "block_count": "n_layer",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        tokenizers=("gpt2",),
    ),
    "starcoder2": Architecture(
        {**_LLAMA, **_layers({"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"})},
        called={"attention.layer_norm_epsilon": "norm_epsilon"},
        tokenizers=("gpt2",),
    ),
}
