"""`weft wrap`."""

import json
import math
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from weft_export.checkpoints.files import read_file
from weft_export.console.failing import plain_errors
from weft_export.console.progress import shown
from weft_export.console.utf8 import utf8
from weft_export.converters.image_processor import read_image_spec
from weft_export.errors import ExportError
from weft_export.wrapping.labels import read_labels
from weft_proto.bundle_rules import LIMITS, MAX_IMAGE_SIDE
from weft_proto.v1 import bundle_pb2, common_pb2

MAX_TOKENS = int(LIMITS["TextSpec"]["max_source_tokens"].most or 0)
wrap_app = typer.Typer(add_completion=False, rich_markup_mode=None)


class WrapTask(StrEnum):
    """What a wrapped model does."""

    CLASSIFY_IMAGE = "classify-image"
    CLASSIFY_TEXT = "classify-text"
    TAG = "tag"


class Resampling(StrEnum):
    """How pictures are resized."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


@wrap_app.command()
def wrap(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX file. Weights may lie beside it.")],
    bundle: Annotated[Path, typer.Argument(help="Directory of the new bundle, for example models/pets/1.")],
    task: Annotated[WrapTask, typer.Option(help="What the model does.")],
    labels: Annotated[
        Path, typer.Option(help="File of the labels: a line each, a JSON list, or a config.json with id2label.")
    ],
    golden: Annotated[
        str, typer.Option(help="A request that the server tries before it is ready: a text, or the file of a picture.")
    ],
    rename: Annotated[
        list[str] | None,
        typer.Option(help="Another name for an input or output: OLD=NEW. For example --rename x=pixel_values."),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Of texts: the tokenizer.json.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Of texts: the longest one, in tokens.")] = 512,
    processor: Annotated[
        Path | None, typer.Option(help="Of pictures: the preprocessor_config.json. It stands for the next four.")
    ] = None,
    image_size: Annotated[str | None, typer.Option(help="Of pictures: pixels, as 224 or as HEIGHTxWIDTH.")] = None,
    mean: Annotated[str | None, typer.Option(help="Of pictures: for each channel, such as 0.5,0.5,0.5.")] = None,
    std: Annotated[str | None, typer.Option(help="Of pictures: for each channel.")] = None,
    resample: Annotated[Resampling | None, typer.Option(help="Of pictures: how they are resized.")] = None,
    description: Annotated[str, typer.Option(help="One sentence for people.")] = "",
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace the bundle that is already there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
) -> None:
    """Make a bundle of an ONNX file that others made, and prove it.

    The model classifies pictures or texts, or tags tokens. It is refused if a row's bits go with its batch.

    It takes pixel_values, or input_ids with lengths or an attention_mask. It gives logits or probabilities.
    """
    with plain_errors("wrap", extra="export"), shown("wrap", line_seconds=math.inf if quiet else 0) as say:
        say(0, 0, "loading torch")
        from weft_export.wrapping.onnx_model import OnnxModel  # noqa: PLC0415 - late: torch takes seconds to import
        from weft_export.wrapping.wrap import wrap_onnx  # noqa: PLC0415 - same

        asked, image, text, files = bundle_pb2.Golden(), None, None, {}
        if task == WrapTask.CLASSIFY_IMAGE:
            name = f"golden{Path(golden).suffix.lower()}"
            asked.image_path, files[name] = name, read_file(Path(golden))
            image = _image(processor, image_size, mean, std, resample)
        else:
            asked.text = utf8("--golden", golden)
            text, files["tokenizer.json"] = _text(tokenizer, max_tokens)
        described = OnnxModel(
            task=common_pb2.Task.Value(f"TASK_{task.name}"),
            description=utf8("--description", description),
            labels=read_labels(labels),
            golden=asked,
            text=text,
            image=image,
            files=files,
        )
        names = _names(rename or [])
        wrapped = wrap_onnx(
            model, bundle, described, names, force=force, on_stage=lambda name, done, total: say(done, total, name)
        )
    parity = wrapped.manifest.parity
    typer.echo(
        f"{wrapped.bundle}: {wrapped.size_bytes / 1e6:.1f} MB, largest difference from {model.name}"
        f" {parity.max_abs_error:.1e} (allowed {parity.tolerance:.2g}), {wrapped.seconds:.1f} s"
    )


def _names(renames: list[str]) -> dict[str, str]:
    names = {}
    for rename in renames:
        # The new name has no "=", and an old one may.
        old, _, new = rename.rpartition("=")
        if not old or not new:
            raise ExportError(f"--rename {rename}: it must be OLD=NEW")
        names[old] = new
    return names


def _image(
    processor: Path | None, size: str | None, mean: str | None, std: str | None, resample: Resampling | None
) -> bundle_pb2.ImageSpec:
    given = {"--image-size": size, "--mean": mean, "--std": std, "--resample": resample}
    if processor is not None:
        if any(given.values()):
            raise ExportError("--processor says what --image-size, --mean, --std and --resample say: leave those out")
        spec = _processed(processor)
    elif size is None or mean is None or std is None or resample is None:
        missing = " and ".join(name for name, value in given.items() if value is None)
        raise ExportError(f"{missing}: a model of pictures needs it, or --processor")
    else:
        height, width = _size(size)
        means, stds = _floats("--mean", mean), _floats("--std", std)
        if len(means) != len(stds) or len(means) not in (1, 3):
            raise ExportError("--mean and --std need a number for each channel: 1 for greys, 3 for colours")
        kind = bundle_pb2.Resample.Value(f"RESAMPLE_{resample.name}")
        spec = bundle_pb2.ImageSpec(
            channels=len(means), height=height, width=width, resample=kind, mean=means, std=stds
        )
    spec.grid_rows = spec.grid_columns = 1  # nothing of it is explained
    return spec


def _processed(path: Path) -> bundle_pb2.ImageSpec:
    try:
        fields = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is not JSON: {error}") from error
    mean = fields.get("image_mean") if isinstance(fields, dict) else None
    return read_image_spec(fields, "", len(mean) if isinstance(mean, list) else 3)


def _size(size: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})(?:x(\d{1,6}))?", size)
    if found is None:
        raise ExportError(f"--image-size {size}: it must be a number of pixels, or HEIGHTxWIDTH")
    sides = int(found[1]), int(found[2] or found[1])
    if not all(1 <= side <= MAX_IMAGE_SIDE for side in sides):
        raise ExportError(f"--image-size {size}: a side must have 1 to {MAX_IMAGE_SIDE} pixels")
    return sides


def _floats(option: str, values: str) -> list[float]:
    try:
        return [float(value) for value in values.split(",")]
    except ValueError as error:
        raise ExportError(f"{option} {values}: it must be numbers with commas between") from error


def _text(path: Path | None, max_tokens: int) -> tuple[bundle_pb2.TextSpec, bytes]:
    from tokenizers import Tokenizer  # noqa: PLC0415 - late: an image classifier needs none

    from weft_export.checkpoints.tokenizer import check_tokenizer, tried  # noqa: PLC0415 - same

    if path is None:
        raise ExportError("--tokenizer is missing: a model of texts needs its tokenizer.json")
    content = read_file(path)
    tokenizer = tried(f"{path} is not a tokenizer", lambda: Tokenizer.from_buffer(content))
    padding = tokenizer.padding
    check_tokenizer(path, tokenizer)
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    spec = bundle_pb2.TextSpec(
        source_tokenizer="tokenizer.json",
        source_vocab_size=highest + 1,
        pad_id=padding["pad_id"] if padding else 0,
        max_source_tokens=max_tokens,
    )
    return spec, content


if __name__ == "__main__":
    wrap_app()
