"""One task, answered by several systems in turn."""

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field

from peer import Peer, PeerError
from search import best_setting
from systems import WEFT, Listed


@dataclass
class Contender:
    """A system in its best configuration, and what it did in each round."""

    system: Listed
    version: str
    setting: dict
    peer: Peer = None
    rounds: list = field(default_factory=list)

    @property
    def speeds(self):
        """Tokens or requests per second, of each round."""
        return [each["speed"] for each in self.rounds]


def contenders(task, systems, num_cpus, sample, chosen, *, quick):
    """Each of the systems that can do the task, in its best configuration; says which cannot and why.

    chosen: configurations by (task, system) that were found before; those found here are added.
    """
    found = []
    for system in systems:
        key = f"{task}: {system.name}"
        try:
            version, settings = task.settings(system, num_cpus)
            if key not in chosen:
                # They come likeliest first, and a single one needs no search.
                proposed = settings[:1] if quick else settings
                chosen[key] = best_setting(task, system, proposed, task.workload.requests(sample))
            print(f"chosen for {key}: {chosen[key]}", flush=True)
            found.append(Contender(system, version, chosen[key]))
        except PeerError as error:
            print(f"skipped {key}: {error}", flush=True)
    return found


def compete(task, found, requests, num_rounds):
    """Run the rounds, every other one backwards, so that nobody always comes first; fills in `rounds`.

    All are open, and whoever is not asked stands still.

    Returns those who were there to the end, and by system their outputs for a few requests, to compare.
    """
    outputs, few = {}, task.workload.requests(min(8, 2 * task.in_flight), seed="few")
    with ExitStack() as stack:

        def begin(contender):
            contender.peer = stack.enter_context(task.opened(contender.system, contender.setting))
            with contender.peer.awake():
                outputs[contender.system.name] = task.run(contender.peer, few, outputs=True)["outputs"]

        def answer(contender):
            with contender.peer.awake():
                contender.rounds.append(task.run(contender.peer, requests))

        found = _without_failures(task, found, begin)
        for index in range(num_rounds):
            order = found if index % 2 == 0 else found[::-1]
            stayed = _without_failures(task, order, answer)
            found = [contender for contender in found if contender in stayed]
    return found, outputs


def _without_failures(task, found, do):
    """Do it with each; those it went well with."""
    stayed = []
    for contender in found:
        try:
            do(contender)
        except PeerError as error:
            print(f"left out of {task}: {contender.system.name}: {error}", flush=True)
        else:
            stayed.append(contender)
    return stayed


def result(task, contender, weft):
    """What a RESULT line holds; weft is Weft's Contender or None."""
    latencies = sorted(seconds for each in contender.rounds for seconds in each["latencies"])
    figures = {
        "workload": task.workload.name,
        "system": contender.system.name,
        "version": contender.version,
        "precision": task.precision,
        "in_flight": task.in_flight,
        task.workload.unit: round(statistics.median(contender.speeds), 1),
        "rounds": [round(speed, 1) for speed in contender.speeds],
        "p50_s": round(percentile(latencies, 50), 4),
        "p99_s": round(percentile(latencies, 99), 4),
        "peak_rss_mb": max(each["peak_rss_mb"] for each in contender.rounds),
        "setting": contender.setting,
    }
    if weft is not None:
        ratios = [ours / theirs for ours, theirs in zip(contender.speeds, weft.speeds, strict=True)]
        figures["ratio_to_weft"] = round(statistics.median(ratios), 3)
        figures["ratios"] = [round(ratio, 3) for ratio in ratios]
    return figures


def percentile(ordered, share):
    """The value that `share` per cent of them do not exceed."""
    return ordered[-(-len(ordered) * share // 100) - 1]


def weft_of(found):
    """Weft among them, if it is there."""
    return next((each for each in found if each.system is WEFT), None)
