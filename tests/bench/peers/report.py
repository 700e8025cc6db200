"""What `make bench-peers` prints at its end: all figures, and Weft against the best peer of each task."""

import statistics

_LONE = ("c", "int8", 1)
_UNITS = ("tokens_per_s", "texts_per_s", "sound_s_per_s", "requests_per_s")
_COLUMNS = (
    "| workload | precision | in flight | system | per s | p50 s | p99 s | peak RSS MB | Weft / it | configuration |"
)


# Below it two systems hardly hold the same weights, whatever near ties there are.
_MIN_FIRST_SHARE = 0.5


def table(results):
    """A Markdown table of all results; a system is marked that begins few of its answers as Weft does, at fp32."""
    rows = [_COLUMNS, "|" + "---|" * (_COLUMNS.count("|") - 1)]
    for each in results:
        over = f"{1 / each['ratio_to_weft']:.2f}" if "ratio_to_weft" in each else ""
        setting = ", ".join(f"{name} {value}" for name, value in each["setting"].items())
        mark = " **other answers**" if each.get("first_share", 1) < _MIN_FIRST_SHARE else ""
        cells = (each["workload"], each["precision"], each["in_flight"], f"{each['system']} ({each['version']}){mark}")
        cells += (_speed(each), each["p50_s"], each["p99_s"], each["peak_rss_mb"], over, setting)
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows)


def verdicts(results):
    """A Markdown table of Weft over the fastest other system of each task; the range is that of the rounds.

    A lone caller of a generator takes whatever precision is fastest: there Weft at int8 meets the others at each, which
    is no comparison in turn where theirs is another.
    """
    rows = ["| workload | precision | in flight | fastest other | Weft / it | rounds |", "|---|---|---|---|---|---|"]
    tasks = {}
    for each in results:
        if each["system"] != "weft" and "ratio_to_weft" in each:
            tasks.setdefault((each["workload"], each["precision"], each["in_flight"]), []).append(each)
    for task, others in tasks.items():
        compared = [(each["ratios"], each["system"]) for each in others]
        if task == _LONE:
            compared += _of_other_precisions(results)
        ratios, system = max(compared, key=lambda each: statistics.median(each[0]))
        rounds = sorted(1 / ratio for ratio in ratios)
        cells = (*task, system, f"{1 / statistics.median(ratios):.2f}", f"{rounds[0]:.2f}..{rounds[-1]:.2f}")
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows)


def _of_other_precisions(results):
    """Of each other system at another precision: its rounds over the median of Weft's at int8, and its name."""
    at_once = [each for each in results if (each["workload"], each["in_flight"]) == (_LONE[0], _LONE[2])]
    weft = next((each for each in at_once if each["system"] == "weft" and each["precision"] == _LONE[1]), None)
    if weft is None:
        return []
    others = [each for each in at_once if each["system"] != "weft" and each["precision"] != _LONE[1]]
    return [
        ([speed / _speed(weft) for speed in each["rounds"]], f"{each['system']} at {each['precision']}")
        for each in others
    ]


def _speed(each):
    return next(each[unit] for unit in _UNITS if unit in each)
