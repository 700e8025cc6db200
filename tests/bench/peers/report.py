"""What `make bench-peers` prints at its end: all figures, and Weft against the best peer of each task."""

_COLUMNS = (
    "| workload | precision | in flight | system | per s | p50 s | p99 s | peak RSS MB | Weft / it | configuration |"
)


def table(results):
    """A Markdown table of all results."""
    rows = [_COLUMNS, "|" + "---|" * (_COLUMNS.count("|") - 1)]
    for each in results:
        over = f"{1 / each['ratio_to_weft']:.2f}" if "ratio_to_weft" in each else ""
        setting = ", ".join(f"{name} {value}" for name, value in each["setting"].items())
        cells = (each["workload"], each["precision"], each["in_flight"], f"{each['system']} ({each['version']})")
        cells += (_speed(each), each["p50_s"], each["p99_s"], each["peak_rss_mb"], over, setting)
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows)


def verdicts(results):
    """A Markdown table of Weft over the fastest other system of each task; the range is that of the rounds."""
    rows = ["| workload | precision | in flight | fastest other | Weft / it | rounds |", "|---|---|---|---|---|---|"]
    tasks = {}
    for each in results:
        if each["system"] != "weft" and "ratio_to_weft" in each:
            tasks.setdefault((each["workload"], each["precision"], each["in_flight"]), []).append(each)
    for task, others in tasks.items():
        best = max(others, key=lambda each: each["ratio_to_weft"])
        rounds = sorted(1 / ratio for ratio in best["ratios"])
        cells = (*task, best["system"], f"{1 / best['ratio_to_weft']:.2f}", f"{rounds[0]:.2f}..{rounds[-1]:.2f}")
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows)


def _speed(each):
    return each.get("tokens_per_s", each.get("requests_per_s"))
