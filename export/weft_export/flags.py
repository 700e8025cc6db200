"""Options of an export as flags of a command, and what is wrong with them: said before torch is loaded."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from weft_export.checkpoints.files import check_regular
from weft_export.checkpoints.formats import (
    MODULES,
    RWKV_CONFIG,
    check_adaptable,
    check_format,
    is_foreign,
    is_gguf,
    is_one_file,
    is_pth,
    read_config,
)
from weft_export.checkpoints.media_files import is_picture, is_recording
from weft_export.converters.classes import PICTURE, check_class, check_length, takes_file
from weft_export.converters.gguf.values import config_in
from weft_export.errors import ExportError
from weft_export.options import DEFAULT_OPTIONS, ExportOptions, flag_of, utf8
from weft_proto.bundle_rules import label_text_fault


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, whose last parameter is `**options`, a flag for each option. Return the command."""
    own = [each for each in inspect.signature(command).parameters.values() if each.kind != each.VAR_KEYWORD]
    rows = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(ExportOptions)
    ]
    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *rows]
    signature = inspect.Signature(parameters)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def check_alone(options: ExportOptions, *, of_each: bool = False) -> None:
    """Check options as far as that can be done without a checkpoint. Raise ExportError as check_options."""
    for name in ("golden", "description", "label_text"):
        if (text := getattr(options, name)) is not None:
            utf8(flag_of(name), text)
    if options.adapted is not None and options.adapters is None:
        raise ExportError("--adapted says which products take adapters: it needs --adapters RANK")
    assert options.adapted_products
    if not of_each:
        options.check_precision()
    if options.held_out is not None:
        check_regular(options.held_out)
    options.check_labels()
    if options.golden is not None and not options.golden.strip():
        raise ExportError("--golden is blank")


def check_options(checkpoint: Path, options: ExportOptions, *, of_each: bool = False) -> None:
    """Check options for an export of this directory, as far as that can be done without the weights.

    of_each: what is asked is said of each precision, and not done in one.

    Raises:
        ExportError: There are five cases:
            1. The directory is of another format, for which there may be another command.
            2. Options contradict each other.
            3. One names a file that cannot be read, or holds a text that is no UTF-8.
            4. One is for a Hugging Face directory, and this is a checkpoint of ours.
            5. One is for other classes of models, by the name of the class.
    """
    check_alone(options, of_each=of_each)
    check_format(checkpoint)
    if options.adapters is not None:
        check_adaptable(checkpoint)
    # Nothing is rounded, scored or computed where all precisions are told of.
    asked = replace(options, precision=DEFAULT_OPTIONS.precision, held_out=None) if of_each else options
    if is_foreign(checkpoint) or is_one_file(checkpoint):
        _check_class(checkpoint, asked)
    if options.of_hugging_face and not (is_foreign(checkpoint) or is_one_file(checkpoint)):
        raise ExportError(
            f"{', '.join(options.of_hugging_face)}: config.json of {checkpoint} says that itself, as of a checkpoint"
            " of Weft"
        )


def _config_of(checkpoint: Path) -> dict[str, Any]:
    if is_gguf(checkpoint):
        return config_in(checkpoint)
    return RWKV_CONFIG if is_pth(checkpoint) else read_config(checkpoint)


def _check_class(checkpoint: Path, options: ExportOptions) -> None:
    config = _config_of(checkpoint)
    check_class(config, options, embeds=options.pooling is not None or (checkpoint / MODULES).exists())
    if options.label_text is not None and (fault := label_text_fault(options.label_text)):
        raise ExportError(f"--label-text {fault}")
    check_length(config, options)
    what = takes_file(config)
    if options.golden is None or not what:
        return
    if not os.path.isfile(options.golden):  # noqa: PTH113 - Path.is_file fails for what is too long
        raise ExportError(f"--golden: {options.golden:.80} is no file; this model answers to {what}")
    with Path(options.golden).open("rb") as file:
        fits = is_picture(file) if what == PICTURE else is_recording(file)
    if not fits:
        raise ExportError(f"--golden: {options.golden:.80} is not {what}, to which this model answers")


def contents_of(options: ExportOptions) -> Mapping[str, str]:
    """Return options by name, for a digest: of a file that one names, its content counts, and not its path."""
    return {field.name: _content(getattr(options, field.name)) for field in fields(ExportOptions)}


def _content(value: object) -> str:
    """Return what an option comes to. A text may name a file, as of the golden request."""
    if isinstance(value, Path | str) and value:
        try:
            return sha256(Path(value).read_bytes()).hexdigest()
        except (OSError, ValueError):
            return str(value)
    return str(value)
