"""The options of `weft bench`, in groups, and what a group makes of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from weft._bench.arrivals import Arrivals, closed, open_, parse_sweep
from weft._bench.lengths import FORMS, parse_lengths
from weft._bench.load import Plan
from weft._bench.report import Slo
from weft._bench.workload import Workload
from weft._options import PICTURES
from weft.exceptions import InvalidRequest

DEFAULT_S = 10.0


def _seconds(option: str, value: float | None, *, least: float = 0.0) -> None:
    if value is not None and not least <= value < float("inf"):
        raise InvalidRequest(f"{option}: must be a number of seconds of at least {least:g}, not {value:g}")


@dataclass(frozen=True)
class Asking:
    """What is asked."""

    model: Annotated[str, typer.Option("--model", metavar="NAME", help="The model; by default the one that fits.")] = ""
    model_version: Annotated[
        int | None, typer.Option("--model-version", min=1, help="Its version; by default the highest.")
    ] = None
    input: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="A text file (a text on each line), a .jsonl file (a string, token ids or an object with text or "
            "token_ids on each line), a picture or a folder of them; several times. By default token ids are drawn.",
        ),
    ] = None
    input_tokens: Annotated[
        str | None,
        typer.Option("--input-tokens", metavar="LENGTHS", help=f"Lengths to draw: {FORMS}; by default 8..32."),
    ] = None
    output_tokens: Annotated[
        str | None,
        typer.Option("--output-tokens", metavar="LENGTHS", help="The same for answers; by default the model decides."),
    ] = None
    free: Annotated[
        bool, typer.Option("--free", help="Answers may end before --output-tokens, when the model ends them.")
    ] = False
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--unary", help="By default streams where text is produced.", show_default=False),
    ] = None
    seed: Annotated[int, typer.Option("--seed", help="Draw the same load again with the same seed.")] = 0

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
        )


@dataclass(frozen=True)
class Sending:
    """How much of it, for how long."""

    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Closed loop: callers that wait for their answer.")
    ] = None
    rate: Annotated[
        float | None, typer.Option("--rate", help="Open loop: requests a second, at random; waiting counts.")
    ] = None
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="LIST", help="One load after another: 1,2,4 in flight, or rate:5,10,20."),
    ] = None
    duration: Annotated[
        float | None,
        typer.Option("--duration", metavar="SECONDS", help=f"How long to measure; {DEFAULT_S:g} unless --requests."),
    ] = None
    requests: Annotated[int | None, typer.Option("--requests", min=1, help="Send so many that count.")] = None
    warmup: Annotated[
        float, typer.Option("--warmup", metavar="SECONDS", help="How long before; that does not count.")
    ] = 1.0
    cancel_fraction: Annotated[
        float, typer.Option("--cancel-fraction", min=0.0, max=1.0, help="Share of requests that are cancelled midway.")
    ] = 0.0

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
        float | None, typer.Option("--slo-ttft", metavar="SECONDS", help="Goodput: to the first message, at most.")
    ] = None
    slo_tpot: Annotated[
        float | None, typer.Option("--slo-tpot", metavar="SECONDS", help="The same for each further token.")
    ] = None
    slo_e2e: Annotated[
        float | None, typer.Option("--slo-e2e", metavar="SECONDS", help="The same for the whole answer.")
    ] = None
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="OUT.png", help="Draw a sweep: throughput and latencies by load.")
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

        require_matplotlib()
        if self.plot.suffix.lower() not in PICTURES or self.plot.is_dir():
            raise InvalidRequest(f"--plot: {str(self.plot)!r} must end in {', '.join(PICTURES)}")
        if not self.plot.parent.is_dir():
            raise InvalidRequest(f"--plot: there is no folder {str(self.plot.parent)!r}")
