"""Rotary positions as others configure them, in both spellings: rope_theta with rope_scaling, and rope_parameters."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from weft_export.converters.fields import Fields
from weft_export.layers.positions import Rope


def read_rope(fields: Fields, head_dim: int, max_tokens: int, *, theta: float = 10000.0, share: float = 1.0) -> Rope:
    """Return how a model turns its heads.

    max_tokens is the context of the bundle. theta and share (of a head that is turned) are what the model has where its
    config names none.

    Raises:
        CheckpointError: the config asks for a kind that is not supported.
    """
    theta = fields.number("rope_theta", theta)
    share = fields.number("partial_rotary_factor", share)
    parameters = fields.part("rope_parameters")
    scaling = fields.part("rope_scaling")
    given = parameters if "rope_type" in parameters or "rope_theta" in parameters else scaling
    return rope_of(fields, given, head_dim, max_tokens, theta=theta, share=share)


def rope_of(fields: Fields, given: Fields, head_dim: int, max_tokens: int, *, theta: float, share: float = 1.0) -> Rope:
    """Return the rotation that one object of parameters describes, beside the fields of the whole config."""
    theta = given.number("rope_theta", theta)
    share = given.number("partial_rotary_factor", share)
    given.skip("type")
    kind = given.word("rope_type", given.word("type", "default"))
    # "su" is what longrope was called first. "mrope" has sections, which only those read that know what they are.
    make = _KINDS.get({"su": "longrope", "mrope": "default"}.get(kind, kind))
    if head_dim > _MAX_HEAD:
        raise given.wrong("rope_type", f"cannot turn heads of {head_dim} numbers; at most {_MAX_HEAD} are allowed")
    turned = int(head_dim * share)
    if make is None:
        raise given.wrong("rope_type", f"is not supported; known are {', '.join(sorted(_KINDS))}")
    if turned < 2 or turned % 2 or turned > head_dim or theta <= 0:
        raise given.wrong("partial_rotary_factor", f"leaves {turned} of {head_dim} numbers of a head to turn")
    powers = theta ** (torch.arange(0, turned, 2, dtype=torch.int64).float() / turned)
    try:
        frequencies, gain = make(fields, given, powers, theta, max_tokens)
    except (ArithmeticError, ValueError) as error:
        raise given.wrong("rope_type", f"has parameters of which no rotation can be made: {error}") from error
    if not (frequencies.isfinite() & (frequencies > 0)).all() or not 1e-6 < gain < 1e6:
        raise given.wrong("rope_type", "has parameters of which no rotation can be made")
    still = head_dim // 2 - turned // 2
    return Rope((*frequencies.tolist(), *(0.0,) * still), gain)


def whole_rope_of(fields: Fields, given: Fields, head_dim: int, max_tokens: int, *, theta: float) -> Rope:
    """Return that of a model for which transformers always turns whole heads.

    Raises:
        CheckpointError: the config asks for less.
    """
    rotation = rope_of(fields, given, head_dim, max_tokens, theta=theta)
    if rope_dim(rotation) != head_dim:
        raise given.wrong("partial_rotary_factor", "is not supported for this model_type")
    return rotation


def rope_dim(rotation: Rope) -> int:
    """Return how many numbers of a head are turned."""
    return 2 * sum(frequency != 0 for frequency in rotation.frequencies)


_MAX_HEAD = 2**16
Made = tuple[Tensor, float]


def _default(_: Fields, __: Fields, powers: Tensor, ___: float, ____: int) -> Made:
    """theta^(-2i/d), "RoFormer" (Su et al. 2021)."""
    return 1.0 / powers, 1.0


def _linear(_: Fields, given: Fields, powers: Tensor, __: float, ___: int) -> Made:
    """Places divided by a factor ("Extending Context Window ...", Chen et al. 2023)."""
    return 1.0 / powers / given.number("factor"), 1.0


def _llama3(fields: Fields, given: Fields, powers: Tensor, _: float, __: int) -> Made:
    """Slow pairs divided by a factor, fast ones as they are, and a ramp between: Llama 3.1."""
    original = _original(fields, given)
    factor, low, high = (given.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    frequencies = 1.0 / powers
    length = 2 * math.pi / frequencies
    ramp = (original / length - low) / (high - low)
    between = (1 - ramp) * frequencies / factor + ramp * frequencies
    slow = torch.where(length > original / low, frequencies / factor, frequencies)
    return torch.where((length >= original / high) & (length <= original / low), between, slow), 1.0


def _yarn(fields: Fields, given: Fields, powers: Tensor, theta: float, _: int) -> Made:
    """As in llama3, by numbers of turns, and with longer queries and keys: "YaRN" (Peng et al. 2023)."""
    original = _original(fields, given)
    factor = _factor(fields, given, original)
    turned = 2 * len(powers)

    def pair_of(turns: float) -> float:
        """The pair that turns so many times within the original context."""
        return turned * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_of(given.number("beta_fast", 32.0)), pair_of(given.number("beta_slow", 1.0))
    if given.flag_or_false("truncate", default=True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, turned - 1)
    span = last - first or 0.001
    kept = 1 - ((torch.arange(len(powers), dtype=torch.float32) - first) / span).clamp(0, 1)
    frequencies = 1.0 / (factor * powers) * (1 - kept) + 1.0 / powers * kept
    return frequencies, _yarn_gain(given, factor)


def _yarn_gain(given: Fields, factor: float) -> float:
    def gain(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    scale, scale_all = given.number("mscale", 0.0), given.number("mscale_all_dim", 0.0)
    default = gain(scale) / gain(scale_all) if scale and scale_all else gain(1.0)
    return given.number("attention_factor", default)


def _longrope(fields: Fields, given: Fields, powers: Tensor, _: float, max_tokens: int) -> Made:
    """A factor for each pair ("LongRoPE", Ding et al. 2024); one list for short contexts, one for long ones.

    transformers takes the long list as soon as a text has grown beyond the original context. A cache could not follow
    that, so a bundle has one of both, by its own context.
    """
    original = _original(fields, given)
    lists = [given.list("short_factor"), given.list("long_factor")]
    if max_tokens > original:
        fields.notes.append(
            f"longrope turns heads for texts of more than {original:.0f} tokens; transformers answers shorter ones"
            f" otherwise, which --max-tokens {original:.0f} avoids"
        )
    factors = lists[max_tokens > original]
    if len(factors) != len(powers) or not all(isinstance(each, int | float) and each > 0 for each in factors):
        raise given.wrong("long_factor", f"must have {len(powers)} numbers above 0, and short_factor too")
    factor = _factor(fields, given, original)
    default = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    gain = given.number("attention_factor", default)
    return 1.0 / (torch.tensor(factors, dtype=torch.float32) * powers), gain


def _factor(fields: Fields, given: Fields, original: float) -> float:
    """Return how many times longer the context is than the original one.

    Raises:
        CheckpointError: nothing says it, and each class of transformers has a number of its own.
    """
    if "factor" in given:
        return given.number("factor")
    return fields.number("max_position_embeddings") / original


def _original(fields: Fields, given: Fields) -> float:
    """Return the context that a model was first trained with."""
    default = fields.number("max_position_embeddings", 0)
    inside = given.number("original_max_position_embeddings", default)
    original = fields.number("original_max_position_embeddings", inside)
    if original < 1:
        raise given.wrong("original_max_position_embeddings", "must be at least 1")
    return original


_KINDS: dict[str, Callable[[Fields, Fields, Tensor, float, int], Made]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
