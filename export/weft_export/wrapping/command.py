"""`weft wrap`."""

import io
import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from PIL import Image

from weft_export.checkpoints.files import check_regular, read_file
from weft_export.checkpoints.media_files import is_picture
from weft_export.choices import POOLINGS, Pooling
from weft_export.console import plain_errors, shown
from weft_export.errors import ExportError
from weft_export.options import read_labels, utf8
from weft_export.target import check_target
from weft_export.wrapping.directory import find_model, read_beside
from weft_export.wrapping.onnx_model import OnnxModel
from weft_export.wrapping.picture_options import PictureOptions, Resampling
from weft_proto.bundle_rules import LIMITS
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

MAX_TOKENS = int(LIMITS["TextSpec"]["max_source_tokens"].maximum or 0)
DEFAULT_TOKENS = 512
GOLDEN_TEXT = "The cat is in the house."
Needed = TypeVar("Needed")
wrap_app = typer.Typer(add_completion=False, rich_markup_mode=None)


class WrapTask(StrEnum):
    """What a wrapped model does."""

    CLASSIFY_IMAGE = "classify-image"
    CLASSIFY_TEXT = "classify-text"
    TAG = "tag"
    EMBED_TEXT = "embed-text"
    EMBED_IMAGE = "embed-image"


@wrap_app.command()
def wrap(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="The ONNX file, or Optimum's directory. Weights may lie beside the file."),
    ],
    bundle: Annotated[Path, typer.Argument(help="Directory of the new bundle, for example models/pets/1.")],
    task: Annotated[
        WrapTask | None, typer.Option(help="What the model does.", show_default="what config.json says")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="File of the labels: a line each, a JSON list, or a config.json with id2label.",
            show_default="those of config.json",
        ),
    ] = None,
    golden: Annotated[
        str | None,
        typer.Option(help="A request that the server tries before it is ready: a text, or the file of a picture."),
    ] = None,
    pooling: Annotated[
        Pooling | None,
        typer.Option(
            help="Of one that embeds: how the places of an input become one vector. Of a graph that does so itself, it"
            " is only said.",
            show_default="what 1_Pooling says",
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(help="Another name for an input or output: OLD=NEW. For example --rename x=pixel_values."),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Of texts: the tokenizer.json.", show_default="that of the directory")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_TOKENS,
            help="Of texts: the longest one, in tokens.",
            show_default=f"what the directory says, at most {DEFAULT_TOKENS}",
        ),
    ] = None,
    processor: Annotated[
        Path | None,
        typer.Option(
            help="Of pictures: the preprocessor_config.json. It stands for the options below.",
            show_default="that of the directory",
        ),
    ] = None,
    image_size: Annotated[str | None, typer.Option(help="Of pictures: pixels, as 224 or as HEIGHTxWIDTH.")] = None,
    mean: Annotated[str | None, typer.Option(help="Of pictures: for each channel, such as 0.5,0.5,0.5.")] = None,
    std: Annotated[str | None, typer.Option(help="Of pictures: for each channel.")] = None,
    resample: Annotated[Resampling | None, typer.Option(help="Of pictures: how they are resized.")] = None,
    rescale_factor: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            max=1,
            help="Of pictures: what pixels of 0 to 255 are multiplied by, before mean and std. 1 leaves them so.",
            show_default="1/255",
        ),
    ] = None,
    resize: Annotated[
        str | None, typer.Option(help="Of pictures: the size, from the middle of which --image-size is cut.")
    ] = None,
    shortest_edge: Annotated[
        int | None,
        typer.Option(min=1, help="Of pictures: likewise, but the shorter side has this, and the aspect stays."),
    ] = None,
    pad: Annotated[
        str | None,
        typer.Option(
            metavar="COLOUR",
            help="Of pictures: the aspect stays, and this colour fills the rest, such as 255,255,255 (letterbox).",
        ),
    ] = None,
    description: Annotated[str, typer.Option(help="One sentence for people.")] = "",
    *,
    bgr: Annotated[bool, typer.Option("--bgr", help="The model takes blue, green, red.")] = False,
    no_normalize: Annotated[
        bool,
        typer.Option(
            "--no-normalize",
            help="Of one that embeds: vectors keep their length. Else it is 1, unless modules.json has no Normalize.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the bundle that is already there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
) -> None:
    """Make a bundle of an ONNX file that others made, and prove it.

    For example: weft wrap pets.onnx models/pets/1

    The model classifies pictures or texts, tags tokens, or makes vectors. It is refused if a row's bits go with its
    batch.

    It takes pixel_values, or input_ids with lengths or an attention_mask. It gives logits, probabilities, embedding or
    last_hidden_state.
    """
    with plain_errors("wrap", extra="export"), shown("wrap", line_seconds=math.inf if quiet else 0) as say:
        path, beside = find_model(model), read_beside(model)
        chosen = WrapTask(_needed("--task", task or beside.task))
        number = common_pb2.Task.Value(f"TASK_{chosen.name}")
        row = TASKS[number]
        image = text = None
        files: dict[str, bytes] = {}
        if row.takes_image:
            given = (image_size, mean, std, resample, rescale_factor, resize, shortest_edge, pad)
            stated = processor or (beside.processor if not any(each is not None for each in given) else None)
            image = PictureOptions(stated, *given).spec()
        else:
            longest = max_tokens or min(beside.max_tokens or DEFAULT_TOKENS, DEFAULT_TOKENS)
            text, files["tokenizer.json"] = _text(tokenizer or beside.tokenizer, longest)
        normalized = not no_normalize and beside.normalized is not False
        embedding = _embedding(pooling or beside.pooling, normalized=normalized) if row.embeds else None
        stated_labels = labels or beside.labels
        named = () if row.embeds and labels is None else read_labels(_needed("--labels", stated_labels))
        described = OnnxModel(
            task=number,
            description=utf8("--description", description),
            labels=named,
            golden=_golden(golden if golden or beside.task is None else "", files, takes_image=row.takes_image),
            text=text,
            image=image,
            embedding=embedding,
            is_bgr=bgr,
            files=files,
        )
        names = _names(rename or [])
        check_regular(path)
        check_target(bundle, force=force)
        say(0, 0, "loading torch")
        from weft_export.wrapping.sentences import put_sentence_files  # noqa: PLC0415 - late: torch takes seconds
        from weft_export.wrapping.wrap import wrap_onnx  # noqa: PLC0415 - same

        notes: list[str] = []
        if text is not None:
            stated_pooling = None if pooling else beside.pooling
            notes = put_sentence_files(model, text, files, stated_pooling, embeds=row.embeds)
        wrapped = wrap_onnx(
            path, bundle, described, names, force=force, on_stage=lambda name, done, total: say(done, total, name)
        )
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    parity = wrapped.manifest.parity
    typer.echo(
        f"{wrapped.bundle}: {wrapped.size_bytes / 1e6:.1f} MB, largest difference from {path.name}"
        f" {parity.max_abs_error:.1e} (allowed {parity.tolerance:.2g}), {wrapped.seconds:.1f} s"
    )


def _needed(flag: str, value: Needed | None) -> Needed:
    """Return what a flag or a directory says. Raises ExportError if neither does."""
    if value is None:
        raise ExportError(f"{flag} is missing. Give it, or a directory whose config.json says it")
    return value


def _golden(given: str | None, files: dict[str, bytes], *, takes_image: bool) -> bundle_pb2.Golden:
    """Return the request to try, whose picture is added to the files. With an empty one, it is one of ours."""
    if given is None:
        raise ExportError("--golden is missing: a request that the server tries before it is ready")
    if not takes_image:
        return bundle_pb2.Golden(text=utf8("--golden", given) or GOLDEN_TEXT)
    name = f"golden{Path(given).suffix.lower() or '.png'}"
    files[name] = read_file(Path(given)) if given else golden_picture()
    if not is_picture(io.BytesIO(files[name])):
        raise ExportError(f"--golden: {given} is not a PNG, JPEG or WebP picture")
    return bundle_pb2.Golden(image_path=name)


def golden_picture() -> bytes:
    """Return a PNG of colours that change in every direction, the same at every wrap."""
    slope = Image.linear_gradient("L")
    out = io.BytesIO()
    Image.merge("RGB", (slope, slope.transpose(Image.Transpose.ROTATE_90), Image.radial_gradient("L"))).save(out, "PNG")
    return out.getvalue()


def _embedding(pooling: str | None, *, normalized: bool) -> bundle_pb2.EmbeddingSpec:
    if pooling is None:
        raise ExportError("--pooling is missing: how the places of an input become one vector")
    return bundle_pb2.EmbeddingSpec(pooling=POOLINGS[Pooling(pooling)].number, normalized=normalized)


def _names(renames: list[str]) -> dict[str, str]:
    names = {}
    for rename in renames:
        # The new name has no "=", and an old one may.
        old, _, new = rename.rpartition("=")
        if not old or not new:
            raise ExportError(f"--rename {rename}: it must be OLD=NEW")
        names[old] = new
    return names


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
