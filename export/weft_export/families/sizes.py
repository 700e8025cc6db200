"""What every family demands of its sizes, and the most that each may be: one table for all configs.

The bounds keep a config from asking for more than any model has; README.md of this folder's parent states them.
Whether the weights are really of these sizes is seen later, before anything of a size is made.
"""

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin

from weft_proto.bundle_rules import MAX_HEADS, MAX_IMAGE_SIDE, MAX_LABELS, MAX_LAYERS

VOCABULARY = 2**20
LENGTH = 2**17
WIDTH = 2**16
MAX_STAGES = 12
"""Of a list: each stage halves the image, whose sides are at most 2 ** 12."""
MAX_TAPS = 64
"""Each is a product and a sum in a graph."""
MAX_EXPERTS, MAX_EXPERTS_IN_ALL = 1024, 2**14
"""Of a layer, and of all layers together."""

LAYER_FIELDS = (
    "num_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "depths",
    "num_blocks",
    "num_attention_blocks",
)
"""Those that say how many modules are built."""
# Ids, of which the first is 0.
_TOKENS = ("separator_id", "filled_with", "unweighted")
# Zeros around a picture, of which there may be none.
_FROM_ZERO = (*_TOKENS, "filled")
LIMITS = {
    **dict.fromkeys(("vocab_size", "source_vocab_size", "target_vocab_size"), VOCABULARY),
    **dict.fromkeys(
        (
            "max_tokens",
            "max_source_tokens",
            "max_target_tokens",
            "sliding_window",
            "max_distance",
            "num_buckets",
            "windows",
        ),
        LENGTH,
    ),
    **dict.fromkeys(
        (
            "d_model",
            "d_ff",
            "d_encoder",
            "d_encoder_ff",
            "d_decoder_ff",
            "d_embedding",
            "d_hidden",
            "d_attention",
            "d_maxout",
            "d_shared",
            "head_dim",
            "cut",
            "padding",
        ),
        WIDTH,
    ),
    **dict.fromkeys(("sections", "max_places"), WIDTH),
    **dict.fromkeys(("widths", "convolution_widths", "convolution_kernels", "convolution_strides"), WIDTH),
    **dict.fromkeys(("position_kernel", "position_groups", "convolution_width", "convolution_kernel"), WIDTH),
    "frame_size": 4096,
    "num_halvings": MAX_STAGES,
    **dict.fromkeys((*LAYER_FIELDS, "rotation_of", "feature_layers", "deep_layers", "reads_every"), MAX_LAYERS),
    **dict.fromkeys(("convolution_taps", "taps"), MAX_TAPS),
    **dict.fromkeys(("d_state", "d_state_head", "d_inner", "step_rank"), WIDTH),
    **dict.fromkeys(("decay_rank", "rate_rank", "value_rank", "gate_rank"), WIDTH),
    **dict.fromkeys(("num_state_heads", "num_state_groups", "num_groups"), MAX_HEADS),
    "attends": 1,
    **dict.fromkeys(("num_heads", "num_kv_heads", "num_encoder_heads", "num_decoder_heads"), MAX_HEADS),
    "num_labels": MAX_LABELS,
    **dict.fromkeys(("image_height", "image_width", "patch_size", "window_size", "position_side"), MAX_IMAGE_SIDE),
    **dict.fromkeys(("stride", "filled"), MAX_IMAGE_SIDE),
    **dict.fromkeys(_TOKENS, VOCABULARY - 1),
    **dict.fromkeys(("num_experts", "num_chosen_experts"), MAX_EXPERTS),
    "channels": 3,
    "num_mels": 256,
    "num_frames": 6000,
    **dict.fromkeys(("expansion", "reduction", "num_class_tokens", "num_registers", "cell", "num_queries"), 64),
}
"""The most that a whole number of a config may be, by its field."""
RANGES = {
    "dropout": (0.0, 1.0),
    **dict.fromkeys(("norm_eps", "inner_norm_eps"), (1e-20, 1.0)),
    "rope_theta": (1.01, 1e12),
    **dict.fromkeys(("scale", "softcap", "gain", "residual_scale", "logit_scale", "gate_limit"), (1e-6, 1e6)),
    "alibi": (0.0, 1e3),
    "frequencies": (0.0, 1e6),
}
"""The least that another number may be, and what it must be below."""
PER_LAYER = ("windows", "rotation_of", "attends")
"""Lists with a number for each layer, or none: see require_each_layer."""


def read_sizes(family: str, config: Callable[..., Any], given: object) -> Any:
    """Return a family's config of what "model" of config.json says.

    Raises:
        ValueError: a size is unknown, missing, or not what a graph can be made of.
    """
    return _read(family, config, given, "model")


def _read(family: str, config: Callable[..., Any], given: object, place: str) -> Any:
    if not isinstance(given, dict):
        raise ValueError(f"{place} must be an object with the sizes of {family}, not {given!r:.40}")  # noqa: TRY004 - as any
    known = fields(config)  # type: ignore[arg-type]
    names = [field.name for field in known]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the sizes of {family} are {', '.join(names)}"
            raise ValueError(f"{place}.{name} is unknown; {hint}")
    missing = [
        f"{place}.{field.name}"
        for field in known
        if field.default is field.default_factory is MISSING and field.name not in given
    ]
    if missing:
        raise ValueError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    kinds = {field.name: field.type for field in known}
    return config(**{name: _part(family, kinds[name], value, f"{place}.{name}") for name, value in given.items()})


def _part(family: str, kind: Any, value: object, place: str) -> object:
    """Return a field's value: of a part with fields of its own, and of a list of such, as that."""
    if is_dataclass(kind):
        return _read(family, kind, value, place)  # type: ignore[arg-type]
    (item, *_) = get_args(kind) or (None,)
    if is_dataclass(item) and isinstance(value, dict):
        return _read(family, item, value, place)  # type: ignore[arg-type]
    if is_dataclass(item) and isinstance(value, list):
        parts = enumerate(value[:MAX_LAYERS])
        return tuple(_read(family, item, each, f"{place}[{index}]") for index, each in parts)  # type: ignore[arg-type]
    return value


def require_sizes(config: Any) -> None:
    """Check each field of a config against its type, and each number against its bound. Lists become tuples.

    Raises:
        ValueError: the first field that is wrong, its value, and what it may be.
    """
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        if is_dataclass(value):
            require_sizes(value)
        elif name in PER_LAYER:
            object.__setattr__(config, name, tuple(value) if isinstance(value, list) else value)
        elif get_origin(field.type) is tuple:
            (item, *_) = get_args(field.type)
            {int: _require_list, float: _require_numbers}.get(item, _require_parts)(name, value)
            object.__setattr__(config, name, tuple(value))
        elif field.type is bool and not isinstance(value, bool):
            raise ValueError(f"model.{name} must be true or false, not {value!r}")
        elif field.type == bool | None and value not in (True, False, None):
            raise ValueError(f"model.{name} must be true, false or null, not {value!r}")
        elif field.type is float or (field.type == float | None and value is not None):
            _require_number(name, value)
        elif field.type is int or (field.type == int | None and value is not None):
            # A family of another package may have sizes that none of ours has.
            _require_whole(name, value, LIMITS.get(name, WIDTH))
    _require_experts(config)


def _require_experts(config: Any) -> None:
    """Raise ValueError for more experts than any model has. Each is a module, which takes time even without memory.

    A style counts with all layers of its config, although some may be of another.
    """
    for field in fields(config):
        if num_experts := getattr(getattr(config, field.name), "num_experts", None):
            total = sum(num_layers_of(config).values()) * num_experts
            if total > MAX_EXPERTS_IN_ALL:
                raise ValueError(f"num_layers * num_experts is {total}; at most {MAX_EXPERTS_IN_ALL} are allowed")


def require_each_layer(name: str, values: Sequence[int], num_layers: int, least: int, most: int) -> None:
    """Raise ValueError unless values has a whole number in [least, most] for each layer, or is empty."""
    whole = isinstance(values, tuple) and all(type(value) is int and least <= value <= most for value in values)
    if not whole or len(values) not in (0, num_layers):
        raise ValueError(f"model.{name} must be empty, or have {num_layers} whole numbers in [{least}, {most}]")


def num_layers_of(config: Any) -> dict[str, int]:
    """Return how many layers each field of a config asks for."""
    asked = {name: getattr(config, name) for name in LAYER_FIELDS if hasattr(config, name)}
    return {name: sum(value) if isinstance(value, tuple) else value for name, value in asked.items()}


def require_head(what: str, size: int, parts: int, multiple: int) -> None:
    """Raise ValueError unless a head has a multiple of `multiple` numbers: size / parts.

    com.microsoft::GroupQueryAttention works on heads of a multiple of 8 numbers, and rotates heads of a multiple of 16.
    """
    if size % (parts * multiple):
        value = f"{size} / {parts}" if parts > 1 else size
        rotated = " when it is rotated" if multiple == 16 else ""
        raise ValueError(
            f"a head has {what} = {value} numbers; that must be a multiple of {multiple} for the attention operator of"
            f" ONNX Runtime{rotated}"
        )


def require_divisible(what: str, number: int, by: str, divisor: int) -> None:
    """Raise ValueError unless divisor divides number."""
    if number % divisor:
        raise ValueError(f"{what} ({number}) must be a multiple of {by} ({divisor})")


def require_among(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"model.{name} must be one of {', '.join(choices)}, not {value!r}")


def _require_whole(name: str, value: object, limit: int) -> None:
    least = 0 if name.partition("[")[0] in _FROM_ZERO else 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= limit:
        raise ValueError(f"model.{name} must be a whole number in [{least}, {limit}], not {value!r}")


def _require_list(name: str, value: object) -> None:
    if not isinstance(value, list | tuple):
        raise ValueError(f"model.{name} must be a list of whole numbers, not {value!r}")  # noqa: TRY004 - as any
    if not 1 <= len(value) <= MAX_STAGES:
        raise ValueError(f"model.{name} must have between 1 and {MAX_STAGES} numbers, not {len(value)}")
    for index, each in enumerate(value):
        _require_whole(f"{name}[{index}]", each, LIMITS[name])


def _require_parts(name: str, value: object) -> None:
    if not isinstance(value, list | tuple) or not all(is_dataclass(each) for each in value):
        raise ValueError(f"model.{name} must be a list of objects, not {value!r:.60}")
    for each in value:
        require_sizes(each)


def _require_numbers(name: str, value: object) -> None:
    if not isinstance(value, list | tuple) or len(value) > WIDTH:
        raise ValueError(f"model.{name} must be a list of numbers, not {value!r:.60}")
    for index, each in enumerate(value):
        _require_number(name, each, f"{name}[{index}]")


def _require_number(name: str, value: object, place: str = "") -> None:
    low, high = RANGES[name]
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number < high:
        raise ValueError(f"model.{place or name} must be a number in [{low:g}, {high:g}), not {value!r}")
