"""The table of options that decide what a bundle has in it. Each field is a flag of every command that exports."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from weft_export.preconditions import Pooling


class Precision(StrEnum):
    """What a bundle computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT8_WEIGHTS = "int8-weights"
    INT4 = "int4"
    NF4 = "nf4"


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is asked of an export, beside the checkpoint and the place of the bundle. The help says what each is."""

    precision: Annotated[
        Precision,
        typer.Option(
            # All names in a row would be wider than a narrow terminal.
            metavar="PRECISION",
            help="fp32, int8, int8-weights, int4 or nf4, which are for CPU; fp16 or bf16, for CUDA.",
        ),
    ] = Precision.FP32
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="Where weights are rounded: file of held-out examples. They measure what it costs.",
            show_default="held_out.jsonl of the checkpoint, if any",
        ),
    ] = None
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
            help="For models that generate, at fp16 or bf16, on CUDA: sequences hold blocks of a cache as they grow, "
            "and not a slot each of the longest. More of them fit into memory.",
        ),
    ] = False
    adapters: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            metavar="RANK",
            help="Take low-rank adapters (LoRA) of at most this rank, which weft export-adapter makes. On CPU.",
            show_default="none",
        ),
    ] = None
    adapted: Annotated[
        str | None,
        typer.Option(
            help="With --adapters: which products of each layer can have one, with commas: qkv,query,key,value,output,"
            "gate,inner,outer. Fewer make quicker steps.",
            show_default="all",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of a Hugging Face directory: the context of a generator, or the longest answer or text. More takes "
            "more memory for each sequence.",
            show_default="what the model takes, at most 2048",
        ),
    ] = None
    max_source_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of a Hugging Face directory that translates: the longest source.",
            show_default="what the model takes, at most 512",
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
            help="Of a whole CLIP model: the text of a label, which takes the place of {}.",
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
