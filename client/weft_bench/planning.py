"""`weft plan`: measures a bundle on this machine, and says what a load needs."""

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from weft import _show as show
from weft._options import SectionedCommand, flat
from weft.exceptions import Error, InvalidRequest
from weft_bench.arrivals import Closed, open_
from weft_bench.asking import make_requests
from weft_bench.event_loop import precise_loop
from weft_bench.lengths import FORMS, parse_lengths
from weft_bench.load import Load, Plan
from weft_bench.own_server import OwnServer, serving
from weft_bench.ports import port_of
from weft_bench.queueing import Level, Prediction
from weft_bench.record import Outcome
from weft_bench.report import Slo, percentile, report_of
from weft_bench.workload import Workload

app = typer.Typer(add_completion=False, rich_markup_mode=None)
# What a bound in seconds is of: this share of the requests.
SHARE = 0.95
# No replica gets more of what it can do. The rest is for bursts, and for the load of one that is gone.
MAX_BUSY = 0.8
# For this share of the time there are enough slots.
SLOTS_SHARE = 0.99
WARMUP_S = 0.5
# Of the times that were seen with so many requests at once.
QUANTILES = 40


@dataclass(frozen=True)
class Wanted:
    """The load, and what callers expect."""

    rate: Annotated[float, typer.Option("--rate", help="Requests a second, of all replicas together.")]
    input: Annotated[
        str | None,
        typer.Option("--input", metavar="LENGTHS", help=f"Tokens of an input: {FORMS}. By default 8..32."),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="LENGTHS", help="Tokens of an answer, in the same forms. By default the model decides."
        ),
    ] = None
    slo_ttft: Annotated[
        float | None,
        typer.Option("--slo-ttft", metavar="SECONDS", help="95 of 100 first messages come within this time."),
    ] = None
    slo_e2e: Annotated[
        float | None,
        typer.Option("--slo-e2e", metavar="SECONDS", help="95 of 100 answers are whole within this time."),
    ] = None
    slots: Annotated[int, typer.Option("--slots", min=1, max=4096, help="The most slots that a replica may have.")] = 32
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="How long to measure each number at once: 1, 2, 4 and so on.")
    ] = 3.0
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False

    def check(self) -> None:
        """Raise what makes it useless to begin."""
        open_("--rate", self.rate)
        for option, bound in (("--slo-ttft", self.slo_ttft), ("--slo-e2e", self.slo_e2e)):
            if bound is not None and not 0 < bound < math.inf:
                raise InvalidRequest(f"{option}: must be a number of seconds, more than 0")

    def workload(self, model: str) -> Workload:
        """Return what to ask."""
        lengths = {"--input": self.input, "--output": self.output}
        parsed = {option: None if text is None else parse_lengths(option, text) for option, text in lengths.items()}
        return Workload(model, input_tokens=parsed["--input"], output_tokens=parsed["--output"])

    def is_kept(self, prediction: Prediction) -> bool:
        """Whether a server answers so many, and callers wait no longer than they may."""
        if not prediction.is_stable:
            return False
        bounds = ((self.slo_ttft, True), (self.slo_e2e, False))
        return all(bound is None or prediction.within(bound, first=first) >= SHARE for bound, first in bounds)


def plan(
    *,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", show_default=False, help="A folder of weft export.")],
    wanted: Wanted,
) -> None:
    """Measure a bundle on this machine, and say what a load needs: replicas, slots and memory, and what bounds it.

    For example: weft plan models/en-es/1 --rate 50

    It serves the bundle with the settings of the environment, and asks it for more and more at once.
    A replica is a server on a machine like this one. The generator runs here too, and takes its share of it.
    """
    wanted.check()
    with serving(bundle, wanted.slots) as own:
        levels = _measure(own, wanted)
        memory = own.peak_bytes()
    said = _plan(levels, wanted) | {"memory_bytes": memory, "levels": [_told(level) for level in levels]}
    if wanted.as_json:
        show.emit_json(said)
    else:
        _tell(said, wanted)
    if said["replicas"] is None:
        raise typer.Exit(1)


app.command(cls=SectionedCommand)(flat(plan))


def _measure(own: OwnServer, wanted: Wanted) -> tuple[Level, ...]:
    """Ask with 1, 2, 4 ... requests at once, up to the slots.

    But for the first, twice as many callers come at random, as those of the real load will.
    """
    port = port_of(own.server, None)
    workload = wanted.workload(own.model.name)
    method = workload.method(own.model)
    if wanted.slo_ttft is not None and not method.streams:
        raise InvalidRequest("--slo-ttft needs a model that writes text; --slo-e2e is for answers that come at once")
    requests = make_requests(workload, own.model, method, port.pack(method))
    numbers = [1 << power for power in range(wanted.slots.bit_length()) if 1 << power < wanted.slots]
    levels: list[Level] = []
    for number in [*numbers, wanted.slots]:
        arrivals = Closed(1) if number == 1 else Closed(2 * number, pauses=True)
        load = Load(arrivals, Plan(WARMUP_S, wanted.seconds), requests, streams=method.streams)
        with show.patience(f"{number} at once"), asyncio.Runner(loop_factory=precise_loop) as runner:
            run = runner.run(load.measure(port.calling(method, own.model.name), lambda _: None))
        report = report_of(run, Slo())
        if failures := report.failures:
            raise Error(f"{failures[0].count} requests failed, the first: {failures[0].message}")
        if not report.completed:
            raise InvalidRequest("--seconds: no answer came in that time; let it last longer")
        per_s, mean = report.per_s.requests, report.latency["e2e"].mean
        done = [each for each in run.records if each.due >= run.start and each.outcome is Outcome.COMPLETED]
        wholes = _quantiles(each.e2e for each in done)
        firsts = _quantiles(each.ttft or 0.0 for each in done) if method.streams else ()
        # Alone it was one. Beyond the slots they wait.
        in_flight = number if number in (1, wanted.slots) else min(per_s * mean, wanted.slots)
        levels = [each for each in levels if each.in_flight < in_flight]
        levels.append(Level(in_flight, per_s, firsts, wholes))
    return tuple(levels)


def _quantiles(times: Iterable[float]) -> tuple[float, ...]:
    found = sorted(times)
    return tuple(percentile(found, (part + 0.5) / QUANTILES) for part in range(QUANTILES))


def _told(level: Level) -> dict[str, float | None]:
    """Return a level with the times that 95 of 100 requests had."""
    first, whole = (percentile([*times], SHARE) if times else None for times in (level.firsts_s, level.wholes_s))
    return {"in_flight": level.in_flight, "per_s": level.per_s, "first_s": first, "whole_s": whole}


def _plan(levels: tuple[Level, ...], wanted: Wanted) -> dict[str, Any]:
    """Return how many replicas there must be, and what they do then. None where no number is enough."""
    # Beyond the best level more of them only wait longer: so many slots are no use.
    best = max(range(len(levels)), key=lambda index: levels[index].per_s)
    is_more_of_use = best == len(levels) - 1
    levels = levels[: best + 1]
    most = levels[best].per_s
    replicas = max(1, math.ceil(wanted.rate / (MAX_BUSY * most)))
    by_processor = replicas
    # A server that gets next to nothing answers as fast as it can.
    if not wanted.is_kept(Prediction(levels, 1e-3 * most)):
        return {"replicas": None, "bound": "latency", "most_per_s": most}
    while not wanted.is_kept(Prediction(levels, wanted.rate / replicas)):
        replicas += max(1, replicas // 50)
    prediction = Prediction(levels, wanted.rate / replicas)
    return {
        "replicas": replicas,
        "slots": prediction.number_within(SLOTS_SHARE) or (None if is_more_of_use else prediction.slots),
        "bound": "throughput" if replicas == by_processor else "latency",
        "most_per_s": most,
        "busy": prediction.busy,
        "mean_s": prediction.mean_s,
        "ttft_p95_s": None if not levels[0].firsts_s else prediction.time_of(SHARE, first=True),
        "e2e_p95_s": prediction.time_of(SHARE, first=False),
    }


def _tell(said: dict[str, Any], wanted: Wanted) -> None:
    for level in said["levels"]:
        first = "" if level["first_s"] is None else f", first message within {level['first_s'] * 1e3:.0f} ms"
        times = f"{first}, answer within {level['whole_s'] * 1e3:.0f} ms"
        show.emit(f"{level['in_flight']:>4.0f} at once: {level['per_s']:.1f} answers/s{times}")
    show.emit(f"one replica: {said['most_per_s']:.1f} answers/s at most")
    if said["replicas"] is None:
        show.emit("no number of replicas is enough: a lone request takes longer than that already")
        return
    memory = "" if said["memory_bytes"] is None else f", {said['memory_bytes'] / 1e6:.0f} MB of memory each"
    slots = f"more than {wanted.slots} slots, see --slots" if said["slots"] is None else f"{said['slots']} slots"
    show.emit(f"for {wanted.rate:g} requests/s: {said['replicas']} replicas, {slots}{memory}")
    first = "" if said["ttft_p95_s"] is None else f"first message within {said['ttft_p95_s'] * 1e3:.0f} ms, "
    show.emit(f"then 95 of 100 have their {first}answer within {said['e2e_p95_s'] * 1e3:.0f} ms")
    show.emit(f"each is {said['busy']:.0%} busy; what bounds it: {said['bound']}")
