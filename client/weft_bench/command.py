"""`weft bench`: find the model, make the requests, run the load, print what it showed."""

import asyncio
import math
import sys
from typing import Any

import typer

from weft import _show as show
from weft._model import Model
from weft._options import SectionedCommand, flat
from weft._server import Server
from weft.exceptions import Error, InvalidRequest, Overloaded
from weft_bench.arrivals import Arrivals
from weft_bench.asking import make_requests
from weft_bench.event_loop import precise_loop
from weft_bench.load import Load, Run
from weft_bench.options import Asking, Judging, Sending
from weft_bench.ports import port_of
from weft_bench.progress import progress
from weft_bench.report import Report, report_of
from weft_bench.tables import print_report, print_sweep

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def bench(*, server: Server, asking: Asking, sending: Sending, judging: Judging) -> None:
    """Put a load on a running server and measure it.

    For example: weft bench --model en-es --concurrency 16

    Prints latencies, rates, and where the time was spent.

    The exit code is 1 if a request failed. A request that the server refused because it was overloaded has not failed.
    """
    port = port_of(server, sending.http)
    workload, loads, plan = asking.workload(), sending.loads(), sending.plan(asking.seed)
    judging.check_plot(sweeps=sending.sweep is not None)
    with show.patience("asking for models"):
        model = workload.find(port.list_models())
    method = workload.method(model)
    slo = judging.slo(streams=method.streams)
    requests = make_requests(workload, model, method, port.pack(method))
    about = {
        "target": server.target,
        "model": model.name,
        "version": model.version,
        "task": model.task,
        "streams": method.streams,
        "seed": asking.seed,
        "options": {**_given(asking, sending, judging), "timeout": _finite(server.timeout)},
    }
    reports: list[Report] = []
    runs: list[Run] = []
    lost: Error | KeyboardInterrupt | None = None
    for arrivals in loads:
        try:
            with progress(plan, f"{model.name}, {arrivals}") as watch:
                load = Load(arrivals, plan, requests, streams=method.streams)
                with asyncio.Runner(loop_factory=precise_loop) as runner:
                    run = runner.run(load.measure(port.calling(method, model.name), watch))
        except (Error, KeyboardInterrupt) as error:  # Ctrl-C while a load connects; one that runs ends by itself
            if not reports:
                raise
            lost = error  # what was measured before is worth its table
            break
        reports.append(report_of(run, slo))
        runs.append(run)
        _tell(reports[-1], arrivals, model, about, as_json=judging.as_json)
        if run.interrupted:
            break
    _conclude(reports, model, judging)
    if lost is not None:
        raise lost
    if runs[-1].interrupted:
        raise typer.Exit(130)
    _judge(reports, runs)


app.command(cls=SectionedCommand)(flat(bench))


def _given(*groups: Asking | Sending | Judging) -> dict[str, Any]:
    """What was asked for, by the flags' names; null: not given."""
    values = {name: value for group in groups for name, value in vars(group).items()}
    values["input"] = [str(path) for path in values["input"] or ()]
    return {name: value for name, value in values.items() if name not in ("plot", "as_json")}


def _finite(seconds: float) -> float | None:
    """JSON has no infinity."""
    return seconds if math.isfinite(seconds) else None


def _tell(report: Report, arrivals: Arrivals, model: Model, about: dict[str, Any], *, as_json: bool) -> None:
    """Print one load, and on stderr what makes its figures doubtful."""
    if as_json:
        show.emit_json({**about, **report.plain()})
    else:
        streams = "streams" if about["streams"] else "unary calls"
        print_report(report, f"{model.name} {model.version} ({model.task}, {streams}), {arrivals}")
    for warning in report.warnings:
        print(f"weft: {warning}", file=sys.stderr)  # noqa: T201 - a warning belongs on stderr


def _conclude(reports: list[Report], model: Model, judging: Judging) -> None:
    """Print and draw what a sweep shows as a whole."""
    if len(reports) > 1 and not judging.as_json:
        print_sweep(reports, f"{model.name} {model.version}")
    if judging.plot is not None:
        from weft_bench.sweep_plot import plot_sweep  # noqa: PLC0415 - only who draws loads it

        with show.patience("drawing"):
            plot_sweep(reports, judging.plot, title=f"{model.name} {model.version} ({model.task})")


def _judge(reports: list[Report], runs: list[Run]) -> None:
    """Raise where it is no success: nothing completed, or a request failed that was not refused for the load.

    Refusals are what an overload is to show; every other failure means that the server, or the request, is at fault.
    """
    errors = [record.error for run in runs for record in run.records if record.error is not None]
    if errors and not any(report.completed for report in reports):
        raise errors[0]
    if not any(report.requests for report in reports):
        raise InvalidRequest("no request was due in the measured time: let it last longer")
    counted = [record.error for run in runs for record in run.records if record.due >= run.start]
    if failed := [error for error in counted if error is not None and not isinstance(error, Overloaded)]:
        raise Error(f"{len(failed)} of {len(counted)} requests failed, the first: {failed[0].message}")
