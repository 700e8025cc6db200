"""The picture of `make simulate`: replicas, the queue and the slowest first tokens, over time."""

import math

from matplotlib.figure import Figure


def plot(cases, path):
    """Draw a column for each cluster, by its title."""
    figure = Figure(figsize=(6 * len(cases), 8), layout="constrained")
    axes = figure.subplots(3, len(cases), sharex="col", squeeze=False)
    for column, (title, cluster) in enumerate(cases.items()):
        times, replicas, queued = zip(*cluster.seen, strict=True)
        serving, waiting, first = axes[:, column]
        serving.step(times, replicas, where="post")
        serving.set_title(title)
        serving.set_ylabel("replicas that serve")
        serving.set_ylim(0)
        waiting.plot(times, queued)
        waiting.set_ylabel("requests that wait")
        first.plot(times, [_slowest(cluster, at) for at in times])
        first.set_ylabel("first token, p95 of those\nthat came in a second, s")
        first.set_yscale("log")
        first.set_xlabel("seconds")
    figure.savefig(path, dpi=100)


def _slowest(cluster, at):
    came = sorted(
        each.first - each.came for each in cluster.requests if at <= each.came < at + 1 and not each.is_refused
    )
    return came[int(0.95 * len(came))] if came else math.nan
