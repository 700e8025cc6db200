"""adapter_config.json of PEFT: what each of its keys is here, and which modules an adapter is for.

Every key of PEFT 0.21's LoraConfig stands in one of these tables. A test holds them to PEFT's own list.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from weft_export.converters.text.json_file import read_object
from weft_export.errors import CheckpointError

CONFIG = "adapter_config.json"
MERGE = "PEFT's merge_and_unload() puts it into the base: export what that saves as a model of its own"
"""The way out for what cannot lie beside a bundle."""

# What an adapter adds follows from these.
USED = frozenset(("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "init_lora_weights"))
# They say which modules have an adapter. The tensors of the file must be of these modules.
TARGETS = frozenset(("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "modules_to_save"))
# PEFT answers the same, whatever they say, in the order of its LoraConfig.
HARMLESS = frozenset(
    (
        "task_type",
        "auto_mapping",
        "peft_version",
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "lora_dropout",
        # PEFT takes it of the module: true of a Conv1D, false of a Linear. So does modules.py.
        "fan_in_fan_out",
        # Which biases were trained. Those that were are tensors of the file.
        "bias",
        # Of how training began; init_lora_weights says whether the base was changed by it.
        "loftq_config",
        "eva_config",
        "corda_config",
        "lora_ga_config",
        # Of the backward pass.
        "velora_config",
        # Count only with another key, which is refused.
        "megatron_core",
        "qalora_group_size",
        # Of embeddings and heads that are adapted or saved, which is refused.
        "ensure_weight_tying",
    )
)
# What is more than LoRA, with words of its own.
REFUSED = {
    "megatron_config": "layers of Megatron are not supported",
    "trainable_token_indices": f"trained rows of an embedding are not supported; {MERGE}",
    "use_dora": f"DoRA is not supported, only LoRA is; {MERGE}",
    "alora_invocation_tokens": "an adapter that begins at a token (aLoRA) is not supported",
    "use_qalora": "QALoRA is not supported",
    "monteclora_config": "MonteCLoRA is not supported",
    "layer_replication": "layers that are there several times are not supported",
    "lora_bias": "a bias of lora_B is not supported",
    "target_parameters": "adapters of parameters are not supported, only those of modules are",
    "use_bdlora": "BD-LoRA is not supported",
    "arrow_config": "a router of several adapters (Arrow) is not supported",
    "kasa_config": "KaSA changes the base's own weights, which is not supported",
}
# What PEFT 0.21 writes down for a mixture of experts, of whose parameters none is adapted.
_NOTHING: tuple[tuple[str, Any], ...] = (("target_parameters", []),)
# Those that leave the weights of the base as they are.
_INITIAL = (None, True, False, "gaussian", "eva", "orthogonal", "mica")
# Those that change them, and that PEFT can turn into plain LoRA.
_CONVERTED = ("pissa", "olora", "corda", "lora_ga")
_ALL_LINEAR = "all-linear"
# PEFT writes down the first two for any classifier, which has one of them, and the last for any model that answers
# questions. A model may call its head otherwise.
_HEADS = ("classifier", "score", "qa_outputs")


def read_config(directory: Path) -> dict[str, Any]:
    """Read adapter_config.json.

    Raises:
        CheckpointError: it is not there or broken, or it is more than LoRA.
    """
    path = directory / CONFIG
    if not path.exists():
        # save_pretrained puts an adapter that has a name into a folder of this name.
        for inner in sorted(directory.glob(f"*/{CONFIG}")):
            raise CheckpointError(f"{directory} has no {CONFIG}, and {inner.parent} has one: give that directory")
    config = read_object(path)
    for sentence in _complaints(config):
        raise CheckpointError(f"{path}: {sentence}")
    return config


def _complaints(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a config, or beyond LoRA."""
    if config.get("peft_type") != "LORA":
        yield f"peft_type must be 'LORA', not {config.get('peft_type')!r:.60}"
    for name, value in config.items():
        if name in REFUSED and value is not None and value is not False and (name, value) not in _NOTHING:
            yield f"{name} is {value!r:.60}: {REFUSED[name]}"
        if name not in USED | TARGETS | HARMLESS | REFUSED.keys() and value:
            yield f"{name} is {value!r:.60}: no such key is known"
    if not any(config.get("init_lora_weights") == each for each in _INITIAL):
        yield _changes_base(config["init_lora_weights"])
    for name in ("r", "lora_alpha"):
        if not isinstance(config.get(name), int | float) or isinstance(config.get(name), bool):
            yield f"{name} must be a number, not {config.get(name)!r:.60}"
    for name in ("rank_pattern", "alpha_pattern"):
        if not isinstance(config.get(name) or {}, dict):
            yield f"{name} must be an object, not {config[name]!r:.60}"
    yield from _wrong_targets(config)


def _changes_base(initial: object) -> str:
    sentence = f"init_lora_weights {initial!r:.60} changes the base's own weights: not supported"
    if str(initial).lower().startswith(_CONVERTED):
        return (
            f"{sentence}; PEFT's save_pretrained(path_initial_model_for_weight_conversion=...) makes plain LoRA of it"
        )
    return sentence


def _wrong_targets(config: Mapping[str, Any]) -> Iterator[str]:
    targets = config.get("target_modules")
    if targets is None:
        yield "target_modules is not given: write the names of the modules that the adapter is for"
    for name in ("target_modules", "exclude_modules", "layers_pattern"):
        value = config.get(name)
        if not (value is None or isinstance(value, str) or _is_list_of(value, str)):
            yield f"{name} must be a string or a list of strings, not {value!r:.60}"
    saved = config.get("modules_to_save")
    if not (saved is None or _is_list_of(saved, str)):
        yield f"modules_to_save must be a list of strings, not {saved!r:.60}"
    layers = config.get("layers_to_transform")
    if not (layers is None or type(layers) is int or _is_list_of(layers, int)):
        yield f"layers_to_transform must be a number or a list of numbers, not {layers!r:.60}"
    if isinstance(targets, str) and (layers is not None or config.get("layers_pattern")):
        yield "layers_to_transform and layers_pattern go with a list of target_modules alone"


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)


def of_module(config: Mapping[str, Any], field: str, module: str, default: Any) -> Any:
    """Return what a pattern says of a module, as PEFT reads it: the first that matches the end of its path."""
    for pattern, value in (config.get(field) or {}).items():
        if _matches(field, rf"(.*\.)?({pattern})$", module):
            return value
    return default


def check_targeted(config: Mapping[str, Any], module: str) -> None:
    """Raise CheckpointError if PEFT leaves out what the file has for a module, because the config is not for it."""
    for said, name in (
        (not _is_targeted(config, module), "target_modules"),
        (_is_excluded(config, module), "exclude_modules"),
        (_is_saved(config, module), "modules_to_save"),
        (not _is_in_layer(config, module), "layers_to_transform"),
    ):
        if said:
            raise CheckpointError(
                f"{CONFIG}: by {name}, the adapter is not for {module}, and the weights have tensors for it. PEFT"
                f" leaves these out: correct {name}, or take the tensors out"
            )


def check_saved(config: Mapping[str, Any], whole: Collection[str]) -> None:
    """Raise CheckpointError if a module was trained whole, and the file has no parameter of it."""
    for module in config.get("modules_to_save") or []:
        there = any(_matches("modules_to_save", rf"(^|.*\.){module}\.", name) for name in whole)
        if not there and module not in _HEADS:
            raise CheckpointError(f"{CONFIG}: modules_to_save names {module}, and the weights have nothing of it")


def _is_targeted(config: Mapping[str, Any], module: str) -> bool:
    targets = config["target_modules"]
    if isinstance(targets, str):
        return targets.lower() == _ALL_LINEAR or bool(_matches("target_modules", rf"(?:{targets})\Z", module))
    return _ends_in(module, targets)


def _is_excluded(config: Mapping[str, Any], module: str) -> bool:
    excluded = config.get("exclude_modules") or []
    if isinstance(excluded, str):
        return bool(_matches("exclude_modules", rf"(?:{excluded})\Z", module))
    return _ends_in(module, excluded)


def _is_saved(config: Mapping[str, Any], module: str) -> bool:
    saved = config.get("modules_to_save") or []
    return any(_matches("modules_to_save", rf"(^|.*\.){each}($|\..*)", module) for each in saved)


def _is_in_layer(config: Mapping[str, Any], module: str) -> bool:
    layers = config.get("layers_to_transform")
    # A path that is named whole is meant, whatever its layer.
    if layers is None or layers == [] or module in config["target_modules"]:
        return True
    patterns = config.get("layers_pattern") or [r"[^.]*"]
    patterns = [patterns] if isinstance(patterns, str) else patterns
    # The first number of a path is the layer's. Where nothing is said of the list's name, it stands behind a name.
    start = "(?:^|.*?\\.)" if config.get("layers_pattern") else ".*?\\."
    for pattern in patterns:
        found = _matches("layers_pattern", rf"{start}{pattern}\.(?P<layer>\d+)\.", module)
        if found:
            return int(found["layer"]) in ([layers] if isinstance(layers, int) else layers)
    return False


def _ends_in(module: str, names: list[str]) -> bool:
    return any(module == name or module.endswith(f".{name}") for name in names)


def _matches(field: str, pattern: str, module: str) -> re.Match[str] | None:
    """Match a pattern that the config has. Raises CheckpointError if it is none."""
    try:
        return re.match(pattern, module)
    except re.error as error:
        raise CheckpointError(f"{CONFIG}: {field} has {pattern!r:.60}, which is no pattern: {error}") from error
