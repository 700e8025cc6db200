"""The picture of `make bench-overload`: goodput and waiting against the load that is offered."""

from itertools import cycle

from matplotlib.figure import Figure


def plot_overload(curves, max_queued, path):
    """Draw two panels over the offered load: answers a second as a share of their peak, and the slowest answers."""
    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    goodput, waiting = figure.subplots(1, 2)
    for each, marker in zip(curves, cycle("osD^"), strict=False):
        offered = [point["offered"] for point in each["points"]]
        peak = max(point["goodput"] for point in each["points"])
        goodput.plot(offered, [point["goodput"] / peak for point in each["points"]], marker=marker, label=each["name"])
        (line,) = waiting.plot(offered, [point["e2e_p99"] for point in each["points"]], marker=marker)
        waiting.axhline(max_queued / each["capacity"], color=line.get_color(), linestyle=":", linewidth=1)
    goodput.set_title("answers a second, as a share of the peak")
    goodput.set_ylim(0, 1.05)
    waiting.set_title("p99 of the time to an answer, s\n(dotted: how long a full queue takes)")
    waiting.set_yscale("log")
    for axes in (goodput, waiting):
        axes.set_xscale("log")
        ticks = [point["offered"] for point in curves[0]["points"]]
        axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("offered load, as a multiple of what the server can bear")
        axes.grid(alpha=0.3)
    handles, labels = goodput.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(curves)))
    figure.savefig(path, dpi=120)
