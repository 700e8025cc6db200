"""The options of `weft bench`, in groups, and what a group makes of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from weft._bench.arrivals import Arrivals, closed, open_, parse_sweep
from weft._bench.lengths import FORMS, parse_lengths
from weft._bench.load import Plan
from weft._bench.report import Slo
from weft._bench.workload import Workload
from weft._options import PICTURES
from weft.exceptions import InvalidRequest

DEFAULT_S = 10.0


def _option(panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **more)


def _seconds(option: str, value: float | None, *, least: float = 0.0) -> None:
    if value is not None and not least <= value < float("inf"):
        raise InvalidRequest(f"{option}: must be a number of seconds of at least {least:g}, not {value:g}")


@dataclass(frozen=True)
class Asking:
    """What is asked."""

    model: Annotated[str, _option("Requests", "--model", help="The model's name; by default the one that fits.")] = ""
    model_version: Annotated[
        int | None, _option("Requests", "--model-version", help="Its version; by default the highest.")
    ] = None
    input: Annotated[
        list[Path] | None,
        _option(
            "Requests",
            "--input",
            metavar="FILE",
            help="A text file (a text on each line), a .jsonl file (a string, token ids or an object with text or "
            "token_ids on each line), a picture or a folder of them; several times. By default token ids are drawn.",
        ),
    ] = None
    input_tokens: Annotated[
        str | None, _option("Requests", "--input-tokens", help=f"Lengths to draw: {FORMS}; by default 8..32.")
    ] = None
    output_tokens: Annotated[
        str | None, _option("Requests", "--output-tokens", help="The same for answers; by default the model decides.")
    ] = None
    free: Annotated[
        bool, _option("Requests", "--free", help="Answers may end before --output-tokens, when the model ends them.")
    ] = False
    stream: Annotated[
        bool | None,
        _option("Requests", "--stream/--unary", help="By default streams where text is produced.", show_default=False),
    ] = None
    seed: Annotated[int, _option("Requests", "--seed", help="Draw the same load again with the same seed.")] = 0

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
        int | None, _option("Load", "--concurrency", "-c", help="Closed loop: callers that wait for their answer.")
    ] = None
    rate: Annotated[
        float | None, _option("Load", "--rate", help="Open loop: requests a second, at random; waiting counts.")
    ] = None
    sweep: Annotated[
        str | None,
        _option("Load", "--sweep", metavar="LIST", help="One load after another: 1,2,4 in flight, or rate:5,10,20."),
    ] = None
    duration: Annotated[
        float | None, _option("Load", "--duration", help=f"Seconds to measure; {DEFAULT_S:g} unless --requests.")
    ] = None
    requests: Annotated[int | None, _option("Load", "--requests", help="Send so many that count.")] = None
    warmup: Annotated[float, _option("Load", "--warmup", help="Seconds before, which do not count.")] = 1.0
    cancel_fraction: Annotated[
        float, _option("Load", "--cancel-fraction", help="Share of requests that are cancelled midway, [0, 1].")
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
        if self.requests is not None and self.requests < 1:
            raise InvalidRequest(f"--requests: must be at least 1, not {self.requests}")
        if not 0.0 <= self.cancel_fraction <= 1.0:
            raise InvalidRequest(f"--cancel-fraction: must be in [0, 1], not {self.cancel_fraction:g}")
        duration = DEFAULT_S if self.duration is None and self.requests is None else self.duration
        return Plan(self.warmup, duration, self.requests, self.cancel_fraction, seed)


@dataclass(frozen=True)
class Judging:
    """What to make of it."""

    slo_ttft: Annotated[
        float | None, _option("Output", "--slo-ttft", help="Goodput: seconds to the first message, at most.")
    ] = None
    slo_tpot: Annotated[float | None, _option("Output", "--slo-tpot", help="The same for each further token.")] = None
    slo_e2e: Annotated[float | None, _option("Output", "--slo-e2e", help="The same for the whole answer.")] = None
    plot: Annotated[
        Path | None, _option("Output", "--plot", metavar="OUT.png", help="Draw a sweep: latency against throughput.")
    ] = None
    as_json: Annotated[bool, _option("Output", "--json", help="Print each load as one line of JSON.")] = False

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
