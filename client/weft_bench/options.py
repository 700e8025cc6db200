"""The options of `weft bench`, in groups, and what a group makes of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from weft._options import PICTURES
from weft.exceptions import InvalidRequest
from weft_bench.arrivals import Arrivals, closed, open_, parse_sweep
from weft_bench.lengths import FORMS, parse_lengths
from weft_bench.load import Plan
from weft_bench.report import Slo
from weft_bench.workload import Workload

DEFAULT_S = 10.0


def _seconds(option: str, value: float | None, *, least: float = 0.0) -> None:
    if value is not None and not least <= value < float("inf"):
        raise InvalidRequest(f"{option}: must be a number of seconds of at least {least:g}, not {value:g}")


@dataclass(frozen=True)
class Asking:
    """What is asked."""

    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="Name of the model. By default the only one that fits the other options."
        ),
    ] = ""
    model_version: Annotated[
        int | None, typer.Option("--model-version", min=1, help="Version of the model. By default the highest.")
    ] = None
    input: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="What to send. A text file: each line is a text. A .jsonl file: each line is a string, a list of "
            "token ids, or an object with text or token_ids. Pictures or recordings, or a folder of them. "
            "Can be given several times. By default token ids are drawn at random.",
        ),
    ] = None
    question: Annotated[
        str,
        typer.Option("--question", metavar="TEXT", show_default=False, help="What to ask about each picture or text."),
    ] = ""
    input_tokens: Annotated[
        str | None,
        typer.Option(
            "--input-tokens", metavar="LENGTHS", help=f"Lengths of the drawn inputs: {FORMS}. By default 8..32."
        ),
    ] = None
    output_tokens: Annotated[
        str | None,
        typer.Option(
            "--output-tokens",
            metavar="LENGTHS",
            help="Lengths of the answers, in the same forms. By default the model decides.",
        ),
    ] = None
    free: Annotated[bool, typer.Option("--free", help="The model may end an answer before --output-tokens.")] = False
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--unary",
            help="Whether answers are streams or single messages. By default streams, if the model writes text.",
            show_default=False,
        ),
    ] = None
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same requests again.")] = 0

    def workload(self) -> Workload:
        """Return what to ask."""
        lengths = {"--input-tokens": self.input_tokens, "--output-tokens": self.output_tokens}
        parsed = {option: None if text is None else parse_lengths(option, text) for option, text in lengths.items()}
        if self.free and self.output_tokens is None:
            raise InvalidRequest("--free needs --output-tokens")
        return Workload(
            self.model,
            self.model_version,
            tuple(self.input or ()),
            parsed["--input-tokens"],
            parsed["--output-tokens"],
            not self.free,
            self.stream,
            self.seed,
            self.question,
        )


@dataclass(frozen=True)
class Sending:
    """How much of it, for how long."""

    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            help="Closed loop: this number of callers. Each waits for its answer before it asks again.",
        ),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", help="Open loop: requests a second, at random times. No request waits for the answer of another."
        ),
    ] = None
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="LIST",
            help="Several loads, one after another. 1,2,4 are values of --concurrency. "
            "rate:5,10,20 are values of --rate.",
        ),
    ] = None
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration",
            metavar="SECONDS",
            help=f"How long to measure. By default {DEFAULT_S:g}, if there is no --requests.",
        ),
    ] = None
    requests: Annotated[int | None, typer.Option("--requests", min=1, help="Measure this number of requests.")] = None
    warmup: Annotated[
        float,
        typer.Option("--warmup", metavar="SECONDS", help="How long to send requests before the measurement begins."),
    ] = 1.0
    cancel_fraction: Annotated[
        float,
        typer.Option(
            "--cancel-fraction", min=0.0, max=1.0, help="Share of the requests that are cancelled before they end."
        ),
    ] = 0.0

    http: Annotated[
        Literal["json", "proto", "openai"] | None,
        typer.Option(
            "--http",
            metavar="FORM",
            show_default=False,
            help="Call by HTTP, and not by gRPC: --target is then the server's --api-port. FORM is json or proto, the "
            "Connect protocol with messages as JSON or in binary, or openai, its completions.",
        ),
    ] = None

    def loads(self) -> list[Arrivals]:
        """Return the loads, one after another."""
        given = [name for name in ("concurrency", "rate", "sweep") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidRequest(f"give one of {' and '.join(f'--{name}' for name in given)}")
        if self.sweep is not None:
            return parse_sweep(self.sweep)
        if self.rate is not None:
            return [open_("--rate", self.rate)]
        return [closed("--concurrency", 1 if self.concurrency is None else self.concurrency)]

    def plan(self, seed: int) -> Plan:
        """Return how long it goes on."""
        _seconds("--warmup", self.warmup)
        _seconds("--duration", self.duration, least=0.1)
        duration = DEFAULT_S if self.duration is None and self.requests is None else self.duration
        return Plan(self.warmup, duration, self.requests, self.cancel_fraction, seed)


@dataclass(frozen=True)
class Judging:
    """What to make of it."""

    slo_ttft: Annotated[
        float | None,
        typer.Option("--slo-ttft", metavar="SECONDS", help="Goodput: the first message comes within this time."),
    ] = None
    slo_tpot: Annotated[
        float | None,
        typer.Option(
            "--slo-tpot",
            metavar="SECONDS",
            help="Goodput: each token after the first takes at most this time, on average.",
        ),
    ] = None
    slo_e2e: Annotated[
        float | None,
        typer.Option("--slo-e2e", metavar="SECONDS", help="Goodput: the whole answer comes within this time."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="OUT.png", help="With --sweep: draw throughput and latencies by load, into this file."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print each load as one line of JSON.")] = False

    def slo(self, *, streams: bool) -> Slo:
        """Return what a good answer keeps."""
        for name in ("slo_ttft", "slo_tpot", "slo_e2e"):
            option = f"--{name.replace('_', '-')}"
            _seconds(option, value := getattr(self, name))
            if value is not None and name != "slo_e2e" and not streams:
                raise InvalidRequest(f"{option} needs streams; --slo-e2e is for answers that come at once")
        return Slo(self.slo_ttft, self.slo_tpot, self.slo_e2e)

    def check_plot(self, *, sweeps: bool) -> None:
        """Raise what makes it useless to begin."""
        if self.plot is None:
            return
        if not sweeps:
            raise InvalidRequest("--plot needs --sweep")
        from weft.plot import require_matplotlib  # noqa: PLC0415 - `weft translate` stays light

        require_matplotlib("bench")
        if self.plot.suffix.lower() not in PICTURES or self.plot.is_dir():
            raise InvalidRequest(f"--plot: {str(self.plot)!r} must end in {', '.join(PICTURES)}")
        if not self.plot.parent.is_dir():
            raise InvalidRequest(f"--plot: there is no folder {str(self.plot.parent)!r}")
