"""A sweep as a picture: throughput and latencies by load, with matplotlib (the extra `bench`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.plot import save
from weft_bench.report import Report

# Inches.
PANEL_WIDTH = 3.4
HEIGHT = 3.9
# The numbers of up to 8 loads have room side by side. Those of more stand on end.
MOST_UPRIGHT = 8
NAMES = {"ttft": "First message (TTFT)", "tpot": "Each token (TPOT)", "e2e": "Whole answer"}
LINES = {"p50": ("tab:blue", "-", "o"), "p99": ("tab:red", "--", "s")}
LOADS = {"closed": "requests in flight", "open": "requests sent each second"}


def plot_sweep(reports: Sequence[Report], path: Path, *, title: str) -> Any:
    """Draw throughput, then p50 and p99 of each latency, over the loads in their order; each load has its place.

    Against throughput a curve would fold back where the server has enough. Latencies are on logarithmic axes, all of
    them, so that panels can be compared.

    Args:
        reports: Of the loads; one in which nothing completed has no points.
        path: Where to write the picture, its format by the suffix.
        title: Stands above.

    Returns:
        The matplotlib Figure.

    Raises:
        InvalidRequest: The path can't be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - only who draws loads it

    ordered = sorted(reports, key=lambda report: report.amount)
    names = [name for name in NAMES if any(name in r.latency and r.latency[name].count for r in ordered)] or ["e2e"]
    figure = Figure((PANEL_WIDTH * (1 + len(names)) + 0.4, HEIGHT), layout="constrained")
    panels = figure.subplots(1, 1 + len(names), squeeze=False)[0]
    _draw_throughput(panels[0], ordered)
    for ax, name in zip(panels[1:], names, strict=True):
        _draw_latency(ax, ordered, name)
    panels[1].set_ylabel("milliseconds, logarithmic")
    panels[1].legend(frameon=False, loc="upper left")
    for ax in panels:
        ax.set_xticks(range(len(ordered)), [f"{report.amount:g}" for report in ordered])
        ax.tick_params(axis="x", rotation=0 if len(ordered) <= MOST_UPRIGHT else 90)
        ax.set_xlim(-0.4, len(ordered) - 0.6)  # whole markers at both ends
        ax.grid(color="0.92")
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, parse_math=False)
    figure.supxlabel(LOADS[reports[0].kind], fontsize="medium")
    save(figure, path)
    return figure


def _draw_throughput(ax: Any, reports: Sequence[Report]) -> None:
    writes = any(report.per_s.output_tokens for report in reports)
    rates = [report.per_s.output_tokens if writes else report.per_s.requests for report in reports]
    ax.plot(range(len(reports)), rates, color="0.3", marker="o", markersize=4)
    ax.set_title("Throughput", fontsize="medium")
    ax.set_ylabel("output tokens/s" if writes else "requests/s")
    ax.margins(y=0.12)
    ax.set_ylim(bottom=0)


def _draw_latency(ax: Any, reports: Sequence[Report], name: str) -> None:
    """Draw one latency; a load without a value has no point."""
    places = [place for place, r in enumerate(reports) if name in r.latency and r.latency[name].count]
    for part, (colour, line, marker) in LINES.items():
        times = [1000 * getattr(reports[place].latency[name], part) for place in places]
        ax.plot(places, times, color=colour, linestyle=line, marker=marker, markersize=4, label=part)
    ax.set_title(NAMES[name], fontsize="medium")
    ax.set_yscale("log")
    ax.margins(y=0.15)
    ax.yaxis.set_major_formatter("{x:g}")
    # Within a decade or two its numbers alone would be one or none.
    low, high = ax.get_ylim()
    if high < 100 * low:
        ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
