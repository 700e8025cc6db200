"""The table of options that decide what a bundle has in it. Each field is a flag of every command that exports."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from weft_export.checkpoints.files import read_file
from weft_export.choices import BLOCK_SIZES, BLOCKS, MAX_RANK, PRECISIONS, PRODUCTS, Pooling, Precision
from weft_export.errors import CheckpointError, ExportError
from weft_export.families.sizes import LENGTH
from weft_proto.bundle_rules import HOST_PRECISIONS, MAX_IMAGE_PIXELS, ROUNDED
from weft_proto.paging import PAGED_PRECISIONS
from weft_proto.v1 import bundle_pb2

# What a checkpoint of ours says itself.
_OF_HUGGING_FACE = (
    "max_tokens",
    "max_source_tokens",
    "max_pixels",
    "description",
    "labels",
    "label_text",
    "pooling",
    "pairs",
    "truncate",
)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is asked of an export, beside the checkpoint and the place of the bundle. The help says what each is."""

    precision: Annotated[
        Precision,
        typer.Option(
            # All names in a row would be wider than a narrow terminal.
            metavar="PRECISION",
            help="fp32, int8, int8-weights, int4 or nf4, which are for CPU; fp16, bf16 or int4-fp16, for CUDA.",
        ),
    ] = Precision.FP32
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="Where weights are rounded: file of held-out examples. They measure what it costs.",
            show_default="held_out.jsonl of the checkpoint, if any",
        ),
    ] = None
    max_block_size: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            help="At int4 and int8-weights, of models that generate: the most weights that share a scale where answers "
            "allow it, 128, 64 or, at int4, 32. Weights of 8 bits, of which int4 has some, have 64 at least. Larger "
            "blocks make quicker steps.",
        ),
    ] = 128
    mixed_runs: Annotated[
        bool,
        typer.Option(
            "--mixed-runs",
            help="For models that generate, on CPU: read prompts in decode runs. Streams then keep their pace beside "
            "long prompts. The server holds the decoder's weights twice.",
        ),
    ] = False
    no_explain: Annotated[
        bool,
        typer.Option(
            "--no-explain",
            help="Leave out the graph that says what an answer attended to. The export is quicker, and no request can "
            "ask to explain.",
        ),
    ] = False
    no_score: Annotated[
        bool,
        typer.Option(
            "--no-score",
            help="Leave out the graph that says how probable a given answer is. The server takes less memory.",
        ),
    ] = False
    paged: Annotated[
        bool,
        typer.Option(
            "--paged",
            help="For models that generate, at fp16, bf16 or int4-fp16, on CUDA: sequences hold blocks of a cache as "
            "they grow, and not a slot each of the longest. More of them fit into memory.",
        ),
    ] = False
    adapters: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_RANK,
            metavar="RANK",
            help="Take low-rank adapters (LoRA) of at most this rank, which weft export-adapter makes. On CPU.",
            show_default="none",
        ),
    ] = None
    adapted: Annotated[
        str | None,
        typer.Option(
            help="With --adapters: which products of each layer can have one, with commas: qkv,query,key,value,output,"
            "gate_proj,up_proj,down_proj. Fewer make quicker steps.",
            show_default="all",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LENGTH,
            help="Of a Hugging Face directory: the context of a generator, or the longest answer or text. More takes "
            "more memory for each sequence.",
            show_default="what the model takes, at most 2048",
        ),
    ] = None
    max_source_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LENGTH,
            help="Of a Hugging Face directory that translates: the longest source.",
            show_default="what the model takes, at most 512",
        ),
    ] = None
    max_pixels: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_IMAGE_PIXELS,
            help="Of a Qwen2-VL or Qwen2.5-VL: the most pixels that a picture is made to have. More of them take more "
            "tokens of the prompt.",
            show_default="what the processor says, at most 1003520",
        ),
    ] = None
    golden: Annotated[
        str | None,
        typer.Option(
            help="What a server tries before it is ready: a text, or the file of a picture, a recording (WAV) or a "
            "text (.txt).",
            show_default="the checkpoint's, or one of the exporter's",
        ),
    ] = None
    description: Annotated[str | None, typer.Option(help="Of a Hugging Face directory: one sentence for people.")] = (
        None
    )
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Of a whole CLIP model: file of labels that stay, with a line each. Their texts are encoded now, and "
            "the bundle has no text encoder. Without it, labels come with a request."
        ),
    ] = None
    label_text: Annotated[
        str | None,
        typer.Option(
            help="Of a whole CLIP or SigLIP model: the text of a label, which takes the place of {}.",
            show_default="This is a photo of {}.",
        ),
    ] = None
    pooling: Annotated[
        Pooling | None,
        typer.Option(
            help="Of the body of a text encoder: make an embedder of it that takes the first token, the mean, the last "
            "token or the largest values.",
            show_default="what modules.json of sentence-transformers says",
        ),
    ] = None
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Of a classifier of texts with several labels: it judges two texts: premise and hypothesis, perhaps. "
            "One of one label always does.",
        ),
    ] = False
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate",
            help="Of a Hugging Face directory that classifies or tags texts, or embeds them: cut a text that is too "
            "long where its own library cuts it. Without it, such a text is refused.",
        ),
    ] = False

    rounded_caches: Annotated[
        bool,
        typer.Option(
            "--rounded-caches",
            help="With --paged: keys and values have 8 bits, so that a cache holds twice as many tokens.",
        ),
    ] = False

    @property
    def number(self) -> bundle_pb2.Precision.ValueType:
        """The precision as a manifest says it."""
        return PRECISIONS[self.precision]

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """The labels that stay: those of the file that was named. Raises CheckpointError as read_labels."""
        return () if self.labels is None else read_labels(self.labels)

    @property
    def adapted_products(self) -> tuple[str, ...]:
        """Which products of a layer take adapters. Raises ExportError for a name that none has."""
        if self.adapted is None:
            return PRODUCTS
        names = tuple(name.strip() for name in self.adapted.split(","))
        for name in names:
            if name not in PRODUCTS:
                raise ExportError(f"{name!r:.60} is no product of a layer; these are: {', '.join(PRODUCTS)}")
        return names

    @property
    def of_hugging_face(self) -> list[str]:
        """The flags that were given of those that are for a Hugging Face directory or a GGUF file alone."""
        given = (name for name in _OF_HUGGING_FACE if getattr(self, name) != getattr(DEFAULT_OPTIONS, name))
        return [flag_of(name) for name in given]

    def check_precision(self) -> None:
        """Raise ExportError for what no server does in this precision, or what is only for another."""
        if self.paged and self.number not in PAGED_PRECISIONS:
            raise ExportError(
                f"--paged is for fp16, bf16 and int4-fp16, on CUDA; at {self.precision} caches lie in slots"
            )
        if self.rounded_caches and not self.paged:
            raise ExportError("--rounded-caches is for --paged; int8 and the like have rounded caches in slots")
        if self.max_block_size not in BLOCK_SIZES:
            raise ExportError(f"--max-block-size {self.max_block_size}: blocks have 32, 64 or 128 weights")
        if self.max_block_size != max(BLOCK_SIZES) and self.number not in BLOCKS:
            raise ExportError("--max-block-size is for int4 and int8-weights: others have blocks of one size, or none")
        if self.max_block_size < min(BLOCKS.get(self.number, (0,))):
            raise ExportError(
                f"--max-block-size {self.max_block_size}: at {self.precision} blocks have 64 or 128 weights"
            )
        if self.adapters is not None and self.number not in HOST_PRECISIONS:
            raise ExportError("adapters are not for fp16, bf16 and int4-fp16: no server runs them on a device")
        if self.mixed_runs and self.number not in HOST_PRECISIONS:
            raise ExportError("mixed runs are not for fp16, bf16 and int4-fp16: no server runs them on a device")
        if self.held_out is not None and self.number not in ROUNDED:
            raise ExportError("held-out examples are for int8 and the like, whose rounding they measure")

    def check_labels(self) -> None:
        """Raise ExportError for a bundle whose adapters could not be made: nothing says afterwards what was chosen."""
        if self.label_names and self.adapters is not None:
            raise ExportError("adapters are not for labels that stay: leave out --labels, or --adapters")


DEFAULT_OPTIONS = ExportOptions()


def flag_of(name: str) -> str:
    """Return the flag of a field."""
    return f"--{name.replace('_', '-')}"


def too_long(option: str, chosen: int, longest: int) -> CheckpointError:
    """Return what is raised for a length that a model does not take."""
    return CheckpointError(f"{flag_of(option)} {chosen}: the model takes {longest} tokens")


def read_labels(path: Path) -> tuple[str, ...]:
    """Return the labels that a file names, in the order of their indices.

    Raises:
        CheckpointError: it holds none, or something else.
    """
    try:
        text = read_file(path).decode()
        found: Any = json.loads(text) if path.suffix == ".json" else [line for line in text.splitlines() if line]
    except (ValueError, RecursionError) as error:  # bytes that are no UTF-8 raise ValueError
        raise CheckpointError(f"{path} cannot be read as labels: {error}") from error
    if isinstance(found, dict):
        by_index = found.get("id2label", {})
        found = [by_index.get(str(index)) for index in range(len(by_index))] if isinstance(by_index, dict) else []
    if not isinstance(found, list) or not found or not all(isinstance(label, str) and label for label in found):
        raise CheckpointError(f"{path} has no labels: a line each, a JSON list, or a config.json with id2label")
    return tuple(found)


def utf8(option: str, text: str) -> str:
    """Return a text that an option gave. ExportError when its bytes were no characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ExportError(f"{option}: it is not UTF-8") from error
    return text
