"""A sweep as a picture: latency against throughput, with matplotlib (the extra `plot`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft._bench.report import Report
from weft.plot import save

PANEL_WIDTH, HEIGHT = 3.6, 3.9  # inches
WIDEST_LINEAR = 30.0  # a panel whose largest value is more times its smallest gets a logarithmic axis
NAMES = {"ttft": "First message (TTFT)", "itl": "Token to token (ITL)", "e2e": "Whole answer"}
LINES = {"p50": ("tab:blue", "-", "o"), "p99": ("tab:red", "--", "s")}


def plot_sweep(reports: Sequence[Report], path: Path, *, title: str) -> Any:
    """Draw p50 and p99 of each latency against what the server put through, a point for each load that completed any.

    Args:
        reports: Of the loads, in order.
        path: Where to write the picture, its format by the suffix.
        title: Stands above.

    Returns:
        The matplotlib Figure.

    Raises:
        InvalidRequest: The path can't be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - only who draws loads it

    drawn = [report for report in reports if report.completed]
    names = [name for name in NAMES if any(name in r.latency and r.latency[name].count for r in drawn)] or ["e2e"]
    figure = Figure((PANEL_WIDTH * len(names) + 0.8, HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for ax, name in zip(panels, names, strict=True):
        _draw_panel(ax, drawn, name)
    panels[0].set_ylabel("milliseconds")
    figure.suptitle(title, parse_math=False)
    labels = {"closed": "requests in flight", "open": "requests sent each second"}
    figure.supxlabel(f"Numbers at the points: {labels[reports[0].kind]}", fontsize="small", color="dimgray")
    panels[0].legend(frameon=False, loc="upper left")
    save(figure, path)
    return figure


def _draw_panel(ax: Any, reports: Sequence[Report], name: str) -> None:
    """Draw one latency; a load without a value has no point."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415 - only who draws loads it

    writes = any(report.per_s.output_tokens for report in reports)
    found = [report for report in reports if name in report.latency and report.latency[name].count]
    through = [report.per_s.output_tokens if writes else report.per_s.requests for report in found]
    values: list[float] = []
    for part, (colour, line, marker) in LINES.items():
        times = [1000 * getattr(report.latency[name], part) for report in found]
        values += times
        ax.plot(through, times, color=colour, linestyle=line, marker=marker, markersize=4, label=part)
        if part == "p99":  # the upper line has the free side for labels
            for report, x, y in zip(found, through, times, strict=True):
                text = ax.annotate(f"{report.amount:g}", (x, y), (0, 6), textcoords="offset points", ha="center")
                text.set(fontsize="small", path_effects=[withStroke(linewidth=3, foreground="white")])
    ax.set_title(NAMES[name], fontsize="medium")
    ax.set_xlabel("output tokens/s" if writes else "requests/s")
    ax.margins(x=0.1, y=0.12)
    ax.set_xlim(left=0)
    ax.locator_params(axis="x", nbins=5)
    if values and min(values) > 0 and max(values) > WIDEST_LINEAR * min(values):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
    else:
        ax.set_ylim(bottom=0)
    ax.grid(color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
