"""What configs and weights of decoder-only models have in common."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.heads import HeadLayout, Split, heads_of
from weft_export.converters.rope import read_rope, rope_dim, whole_rope_of
from weft_export.converters.sources import Names, Source, both, computed, half, tied
from weft_export.errors import CheckpointError
from weft_export.families.decoder_only import ALL, DecoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.positions import Rope
from weft_export.layers.style import Style

_SIZES = {
    name: name
    for name in (
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "intermediate_size",
        "max_position_embeddings",
        "head_dim",
    )
}


def read_sizes(
    hf: HfCheckpoint,
    style: Style,
    words: EmbeddingStyle,
    *,
    called: Mapping[str, str] | None = None,
    absent: Mapping[str, int] | None = None,
    longest: bool = False,
    turns: bool = True,
) -> DecoderOnlyConfig:
    """Read the sizes under the names that most configs give them.

    called: other names of this kind of model, by the usual ones.
    absent: what transformers' class takes where the config does not have one of the usual names. Where it has none, and
        where a config says null, each head has keys and values, heads share the width, and what is inside is 4 times
        as wide.
    longest: no text can be longer than max_position_embeddings, because each place has a weight.
    turns: a rotation will follow.
    """
    fields, name, absent = hf.fields, {**_SIZES, **(called or {})}, absent or {}

    def size(usual: str, otherwise: int) -> int:
        number = fields.whole_or_null(name[usual], absent.get(usual))
        return otherwise if number is None else number

    d_model, num_heads = fields.whole(name["hidden_size"]), fields.whole(name["num_attention_heads"])
    positions = size("max_position_embeddings", 2048)
    head_dim = size("head_dim", d_model // max(num_heads, 1))
    padding = -head_dim % (16 if turns else 8)
    if padding and style.qk_norm:
        complaint = "must be a multiple of 16 for a model that norms queries and keys"
        if name["head_dim"] in fields:
            raise fields.wrong(name["head_dim"], complaint)
        quotient = f"{name['hidden_size']} / {name['num_attention_heads']}"
        raise CheckpointError(f"{fields.place}: {quotient} is {head_dim}: it {complaint}")
    if padding:
        style = replace(style, scale=style.scale or head_dim**-0.5)
    if padding or head_dim * num_heads != d_model:
        style = replace(style, head_dim=head_dim + padding)
    return DecoderOnlyConfig(
        vocab_size=fields.whole("vocab_size"),
        max_tokens=hf.max_tokens(positions if longest or hf.options.truncate else None, min(2048, positions)),
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=size("num_key_value_heads", num_heads),
        d_ff=size("intermediate_size", 4 * d_model),
        num_layers=fields.whole(name["num_hidden_layers"]),
        style=style,
        embeddings=words,
        padding=padding or None,
    )


def turned(
    hf: HfCheckpoint, config: DecoderOnlyConfig, *, theta: float = 10000.0, share: float | None = None
) -> DecoderOnlyConfig:
    """Return the sizes with the one rotation that all layers have.

    share: of a head that is turned, where the config says none. None: models of this kind turn whole heads.
    """
    stored = config.head_dim - (config.padding or 0)
    rotation = read_rope(hf.fields, stored, config.max_tokens, theta=theta, share=share or 1.0)
    if share is None and rope_dim(rotation) != stored:
        raise hf.fields.wrong("partial_rotary_factor", "is not supported for this model_type")
    return replace(config, rotations=(padded(rotation, config),))


def turned_sizes(
    hf: HfCheckpoint,
    style: Style,
    *,
    absent: Mapping[str, int],
    tied: bool = False,
    theta: float = 10000.0,
    share: float | None = None,
) -> DecoderOnlyConfig:
    """Return the sizes of a kind like Llama, with one rotation: read_sizes, read_words and turned say what each is."""
    config = read_sizes(hf, style, read_words(hf, tied=tied), absent=absent)
    return turned(hf, config, theta=theta, share=share)


def llama_style(hf: HfCheckpoint, norm_eps: float = 1e-6, **differences: Any) -> Style:
    """Return the style of Llama's layers without biases, but for what differs in a kind.

    norm_eps: what its class takes where the config says nothing.
    """
    usual: dict[str, Any] = {
        "rms_norm": True,
        "norm_eps": hf.fields.number("rms_norm_eps", norm_eps),
        "activation": read_activation(hf.fields),
        "gated": True,
        "bias": False,
    }
    return Style(**usual | differences)


def turned_by_window(hf: HfCheckpoint, config: DecoderOnlyConfig, *, far: float, near: float) -> DecoderOnlyConfig:
    """Return the sizes with the rotation of the layers that see all, and that of the layers with a window.

    far, near: their thetas where the config says none.
    """
    fields = hf.fields
    parameters, scaling = fields.part("rope_parameters"), fields.part("rope_scaling")
    seeing_all, windowed_ones = parameters.part("full_attention"), parameters.part("sliding_attention")
    is_said = "rope_type" in seeing_all or "rope_theta" in seeing_all
    kinds = (seeing_all if is_said else scaling, far), (windowed_ones, near)
    lengths = config.head_dim, config.max_tokens
    rotations = [whole_rope_of(fields, given, *lengths, theta=theta) for given, theta in kinds]
    return replace(
        config,
        rotations=tuple(padded(rotation, config) for rotation in rotations),
        rotation_of=tuple(int(window != ALL) for window in config.windows),
    )


def padded(rotation: Rope, config: DecoderOnlyConfig) -> Rope:
    """Return a rotation of their heads as one of ours: what is padded stays."""
    still = config.head_dim // 2 - len(rotation.frequencies)
    return replace(rotation, frequencies=(*rotation.frequencies, *(0.0,) * still))


def windowed(
    hf: HfCheckpoint,
    config: DecoderOnlyConfig,
    window: int | None,
    sliding: Callable[[int], bool],
    *,
    typed: bool = True,
) -> DecoderOnlyConfig:
    """Return the sizes with a window in some layers: those that layer_types names, else those that sliding says.

    typed: layer_types counts. transformers does not read it for all kinds; there it must say what sliding says.

    Raises:
        CheckpointError: layer_types is not one of two words for each layer, or asks for a window that is not there.
    """
    fields, known = hf.fields, ["full_attention", "sliding_attention"]
    usual = [known[sliding(layer)] for layer in range(config.num_layers)]
    types = fields.list("layer_types", usual)
    if len(types) != config.num_layers or not all(each in known for each in types):
        raise fields.wrong("layer_types", f"must have {' or '.join(known)} for each of {config.num_layers} layers")
    if not typed and types != usual:
        raise fields.wrong("layer_types", "differs from sliding_window, which alone counts for this model_type")
    if known[1] not in types:
        return config
    if not window:
        raise fields.wrong("sliding_window", "must be at least 1 for layers with sliding_attention")
    sizes = {known[0]: ALL, known[1]: min(window, config.max_tokens)}
    return replace(config, windows=tuple(sizes[each] for each in types))


def read_words(hf: HfCheckpoint, *, tied: bool, **choices: float | bool | None) -> EmbeddingStyle:
    """Return how words become vectors and back; tied is what models of this kind do where the config does not say."""
    banned = bool(hf.generation.banned)
    return EmbeddingStyle(
        **{  # type: ignore[arg-type]
            "tied": hf.fields.flag("tie_word_embeddings", default=tied),
            "bias": banned,
            **choices,
        }
    )


def read_activation(fields: Fields, name: str = "hidden_act", default: str = "silu") -> str:
    """Return our word for an activation."""
    return fields.among(name, ACTIVATIONS, default)


class HasEmbeddings(Protocol):
    """The config of a model that writes words."""

    @property
    def vocab_size(self) -> int:
        """How many there are."""

    @property
    def embeddings(self) -> EmbeddingStyle:
        """How they become vectors and back."""


def read_taps(fields: Fields, name: str, default: int) -> int:
    """Read over how many tokens a short convolution goes."""
    taps = fields.whole(name, default)
    if taps < 2:
        raise fields.wrong(name, "must be at least 2: with 1 there is nothing to remember")
    return taps


def head_names(config: HasEmbeddings, tokens: str, projection: str = "lm_head") -> Names:
    """Return the sources of the words: their table of tokens, and their output projection."""
    table, head = f"{tokens}.weight", f"{projection}.weight"
    return {
        "embeddings.tokens.weight": tied(table, head) if config.embeddings.tied else table,
        "embeddings.projection.weight": head,
        # No file has it: it holds the tokens that are never written.
        "embeddings.bias": computed(lambda: torch.zeros(config.vocab_size)),
    }


def attention_names(
    config: DecoderOnlyConfig,
    qkv: Sequence[str],
    output: str,
    split: Callable[[HeadLayout], Split] | None = None,
    *,
    transposed: bool = False,
    neighbours: bool = False,
) -> Names:
    """Return the sources of all layers' attentions.

    qkv: three names, or one of a tensor that split takes apart.
    transposed: the output projection is stored as [in, out].
    neighbours: heads are turned in pairs of neighbours.
    """
    heads, ours = heads_of(config, neighbours=neighbours), "layers.{}.attention"
    taken = None if split is None else split(heads)
    return {
        f"{ours}.qkv.weight": heads.qkv(*(f"{name}.weight" for name in qkv), split=taken),
        f"{ours}.qkv.bias": heads.qkv(*(f"{name}.bias" for name in qkv), split=taken),
        f"{ours}.output.weight": heads.output(f"{output}.weight", transposed=transposed),
        f"{ours}.output.bias": f"{output}.bias",
    }


def qkv_of(attention: str) -> list[str]:
    """Return the names that most models give to the projections of an attention."""
    return [f"{attention}.{part}_proj" for part in "qkv"]


def gated_names(theirs: str) -> Names:
    """Return the sources of all layers' gated networks, under the names that most models give to the three products."""
    ours = "layers.{}.feed_forward"
    return {
        name: source
        for part in ("gate_proj", "up_proj", "down_proj")
        for name, source in both(f"{ours}.{part}", f"{theirs}.{part}").items()
    }


def merged_gated_names(theirs: str) -> Names:
    """Return the same where gate_proj and up_proj lie in one tensor. Such networks have no biases."""
    ours, merged = "layers.{}.feed_forward", f"{theirs}.gate_up_proj.weight"
    return {
        f"{ours}.gate_proj.weight": half(0, merged),
        f"{ours}.up_proj.weight": half(1, merged),
        f"{ours}.down_proj.weight": f"{theirs}.down_proj.weight",
    }


def norm_names(ours: str, theirs: str) -> Names:
    """Return the sources of a norm of either kind."""
    return {f"{ours}.weight": f"{theirs}.weight", f"{ours}.bias": f"{theirs}.bias"}


def plus_one(name: str) -> Source:
    """Return a norm's weight that is stored as what it is above 1, as Gemma's are."""
    return computed(lambda weight: 1.0 + weight, name)
