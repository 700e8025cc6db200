"""What a soak shows: counts, verdicts, and the p99 of each task over time."""

import json
from collections import Counter

from asks import TASKS
from machine import machine

NUM_ROWS = 20
# A row of the table is not shorter.
MIN_ROW_S = 10.0


def rows_of(soak):
    """(number of rows, seconds of each) into which what was measured is cut."""
    seconds = soak.samples[-1].at_s
    num_rows = max(1, min(NUM_ROWS, int(seconds / MIN_ROW_S)))
    return num_rows, seconds / num_rows


def p99s(soak):
    """For each task and row, the p99 in milliseconds of calls that no fault befell. None where there are none."""
    num_rows, row_s = rows_of(soak)
    times = {task: [[] for _ in range(num_rows)] for task in TASKS}
    for call in soak.calls:
        if call.stretch == 1 and call.fault == "none" and call.code == "OK":
            times[call.task][min(num_rows - 1, int(call.due / row_s))].append(1000 * call.seconds)
    return {task: [_p99(each) for each in rows] for task, rows in times.items()}


def _p99(values):
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))] if values else None


def busy(soak):
    """Shares of one core that the server and the load used."""
    first, last = soak.samples[0], soak.samples[-1]
    seconds = last.at_s - first.at_s
    return (last.server_cpu_s - first.server_cpu_s) / seconds, (last.load_cpu_s - first.load_cpu_s) / seconds


def counts_of(soak):
    """Faults and how their calls ended: {fault: {status: calls}}."""
    counts = Counter((call.fault, call.code) for call in soak.calls)
    faults = sorted({fault for fault, _ in counts})
    return {fault: {code: n for (f, code), n in sorted(counts.items()) if f == fault} for fault in faults}


def print_report(soak, verdicts):
    """Tables for a page in Markdown."""
    server, load = busy(soak)
    of = machine()
    num_killed = {code: n for (fault, _, code), n in sorted(soak.ended.items()) if fault == "killed"}
    print(f"{of['date']}, commit {of['commit']}, {of['cpu']}, {of['cpus']} CPUs, load average {of['load']:.1f}")
    print(f"cores used: server {server:.2f}, load {load:.2f}")
    print(f"requests: {len(soak.calls)}, faults: {sum(call.fault != 'none' for call in soak.calls)}")
    for fault, ends in counts_of(soak).items():
        print(f"- {fault}: {', '.join(f'{n} {code}' for code, n in ends.items())}")
    print(f"- killed clients: {soak.num_kills}, with {soak.killed} calls; the server saw {num_killed}")
    print(f"- swaps of en-es: {soak.num_swaps}\n")
    print("| | found | |\n|---|---|---|")
    for verdict in verdicts:
        print(f"| {verdict.what} | {verdict.found} | {'kept' if verdict.is_kept else '**not kept**'} |")
    print_p99s(soak)


def print_p99s(soak):
    """The table of p99 over time."""
    table = p99s(soak)
    _, row_s = rows_of(soak)
    print(f"\np99 in ms of calls without a fault, from when they were due:\n\n| from s | MB | {' | '.join(table)} |")
    print("|---" * (2 + len(table)) + "|")
    for row, values in enumerate(zip(*table.values(), strict=True)):
        sizes = [each.rss_mb for each in soak.samples if row * row_s <= each.at_s < (row + 1) * row_s]
        shown = " | ".join("-" if value is None else f"{value:.0f}" for value in values)
        print(f"| {row * row_s:.0f} | {sum(sizes) / max(1, len(sizes)):.0f} | {shown} |")


def write_report(soak, verdicts, path):
    """The same as JSON, with all samples."""
    report = {
        "machine": machine(),
        "verdicts": [verdict._asdict() for verdict in verdicts],
        "counts": counts_of(soak),
        "busy": busy(soak),
        "row_s": rows_of(soak)[1],
        "p99_ms": p99s(soak),
        "samples": [sample._asdict() for sample in soak.samples],
        "kills": soak.num_kills,
        "swaps": soak.num_swaps,
        "errors": soak.errors,
    }
    path.write_text(json.dumps(report, indent=1) + "\n")
