"""The picture of `make soak`: memory with its line, and the p99 of each task, over time."""

from itertools import cycle

from matplotlib.figure import Figure
from report import p99s, rows_of
from slope import slope_of


def plot_soak(soak, path):
    """Draw two panels over the minutes that were measured."""
    times = [each.at_s for each in soak.samples]
    sizes = [each.rss_mb for each in soak.samples]
    slope = slope_of(times, sizes)
    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    memory, waiting = figure.subplots(1, 2)
    memory.plot([at / 60 for at in times], sizes, linewidth=0.8, label="resident memory")
    middle_s, mean = sum(times) / len(times), sum(sizes) / len(sizes)
    ends = [times[0], times[-1]]
    line = [mean + slope.per_hour * (at - middle_s) / 3600 for at in ends]
    memory.plot([at / 60 for at in ends], line, linestyle="--", label=f"{slope.per_hour:+.1f} MB an hour")
    memory.set_ylim(0, 1.25 * max(sizes))
    memory.set_title("memory of the server, MB")
    memory.legend(loc="lower center")
    _, row_s = rows_of(soak)
    for (task, values), marker in zip(p99s(soak).items(), cycle("osD^vPX<>hp"), strict=False):
        middles = [(row + 0.5) * row_s / 60 for row in range(len(values))]
        waiting.plot(middles, values, marker=marker, markersize=4, linewidth=1, label=task)
    waiting.set_title("p99 of the time to an answer, ms")
    waiting.set_ylim(bottom=0)
    for axes in (memory, waiting):
        axes.set_xlabel("minutes since the end of the warm-up")
        axes.grid(alpha=0.3)
    handles, labels = waiting.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
    figure.savefig(path, dpi=120)
