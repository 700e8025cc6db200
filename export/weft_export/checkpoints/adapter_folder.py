"""What to do with a folder that holds an adapter of PEFT: the commands that serve it, beside its base."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from weft_export.choices import MAX_RANK
from weft_proto.bundle_rules import ADAPTER_NAME, CONFIG_FILE

_BASE, _BUNDLE = "BASE", "models/base/1"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def next_commands(path: Path, said: dict[str, Any], is_fit: Callable[[Path], bool]) -> str:
    """Return what the folder is, and the commands that serve it, as its adapter_config.json lets them be known.

    said: what that file says.
    is_fit: whether adapters can be added to the weights of a checkpoint's directory.
    """
    if (kind := said.get("peft_type")) not in ("LORA", None):
        return f"{path} is an adapter of PEFT of the type {kind!r:.60}: only LORA is supported"
    rank = max(_ranks(said), default=None)
    if rank is not None and rank > MAX_RANK:
        return (
            f"{path} is an adapter of PEFT of rank {rank}, and a bundle takes {MAX_RANK} at most: PEFT's"
            " merge_and_unload() puts it into its base; export what that saves"
        )
    base, where = _base(said.get("base_model_name_or_path"), is_fit)
    adapter = shlex.quote(str(path))
    name = "" if ADAPTER_NAME.fullmatch(path.resolve().name) else " --name adapter"
    return (
        f"{path} is an adapter of PEFT, which is served beside its base.{where} Three commands serve it:"
        f" `weft export {base} {_BUNDLE} --adapters {rank or 'RANK'}`,"
        f" `weft export-adapter {adapter} {_BUNDLE} --checkpoint {base}{name}`, `weft serve models`"
    )


def _ranks(said: dict[str, Any]) -> Iterator[int]:
    """Yield the ranks of all its products. What is wrong with them, `weft export-adapter` says."""
    patterns = said.get("rank_pattern")
    for value in (said.get("r"), *(patterns.values() if isinstance(patterns, dict) else ())):
        if type(value) is int and value >= 1:
            yield value


def _base(named: object, is_fit: Callable[[Path], bool]) -> tuple[str, str]:
    """Return the base as a command names it, and a sentence about where it is, which may be empty."""
    if not isinstance(named, str) or not named:
        return _BASE, f" {_BASE} stands for the directory of the model that it was trained on."
    if (Path(named) / CONFIG_FILE).is_file():
        if is_fit(Path(named)):
            return shlex.quote(named), ""
        return _BASE, (
            f" It was trained on {named:.300}, whose weights are quantised: {_BASE} stands for the checkpoint that"
            " this was made of."
        )
    if _HUB_NAME.fullmatch(named):
        folder = named.rpartition("/")[2]
        return folder, f" `hf download {named} --local-dir {folder}` fetches that."
    return _BASE, f" {_BASE} stands for {named:.300}, which is not here."
