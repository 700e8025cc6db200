"""A report for people: what happened, and percentiles in milliseconds."""

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from weft._terminal import words
from weft_bench.report import Report, Summary

NAMES = {
    "ttft": "first message (TTFT)",
    "tpot": "each token (TPOT)",
    "itl": "token to token (ITL)",
    "gap": "message to message",
    "e2e": "whole answer",
    "queue": "server: queue",
    "prefill": "server: prefill",
    "decode": "server: decode",
    "late": "generator: sent late",
    "lag": "generator: woken late",
}
COLUMNS = ("p50", "p90", "p95", "p99", "mean", "max")
# A terminal with fewer columns than this shows fewer figures, because a number that is cut tells nothing.
NARROW = 80
NARROW_COLUMNS = ("p50", "p99", "max")
NARROW_SWEEP = 112


def print_report(report: Report, title: str) -> None:
    """Print one load on stdout."""
    console = _console()
    console.print(words(title, style="bold"))
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(report):
        facts.add_row(words(name, style="dim"), words(value))
    console.print(facts)
    table = Table("milli-\nseconds", box=SIMPLE_HEAD)
    columns = COLUMNS if console.width >= NARROW else NARROW_COLUMNS
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for part in (report.latency, report.server, report.generator):
        for name, summary in part.items():
            if summary.max > 0.0:  # nothing decodes in a classifier; what was not measured is NaN
                table.add_row(NAMES[name], *(_ms(getattr(summary, column)) for column in columns))
    console.print(table)


def _facts(report: Report) -> list[tuple[str, str]]:
    parts = {name: getattr(report, name) for name in ("completed", "cancelled", "failed", "unfinished")}
    counts = ", ".join(f"{count} {name}" for name, count in parts.items() if count or name == "completed")
    facts = [("requests", f"{report.requests}: {counts}")]
    facts += [
        (f"{each.status} {each.reason}".strip(), f"{each.count}, the first: {each.message}") for each in report.failures
    ]
    rates = report.per_s
    facts.append(("measured", f"{report.seconds:.1f} s"))
    facts.append(("requests/s", _rate(rates.requests)))
    if rates.good is not None:
        share = "" if report.good_share is None else f" ({report.good_share:.1%} of what was answered or failed)"
        facts.append(("goodput", f"{_rate(rates.good)} requests/s{share}"))
    if rates.input_tokens:
        facts.append(("tokens/s in", _rate(rates.input_tokens)))
    if rates.output_tokens:
        facts.append(("tokens/s out", _rate(rates.output_tokens)))
    if report.tokens_per_message is not None:
        facts.append(("tokens/message", f"{report.tokens_per_message:.2f}"))
    return facts


def print_sweep(reports: Sequence[Report], title: str) -> None:
    """Print the loads of a sweep on stdout, one a row."""
    console = _console()
    gaps = (0, 1) if console.width >= NARROW else (0, 1, 0, 0)
    table = Table(title=words(title), box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=gaps)
    streams = any("ttft" in report.latency for report in reports)
    table.add_column("in\nflight" if reports[0].kind == "closed" else "sent/s", justify="right", no_wrap=True)
    shown = ["ttft", "tpot", "e2e"] if streams else ["e2e"]
    parts = ("p50", "p99") if console.width >= NARROW_SWEEP else ("p99",)
    times = [f"{name.upper()}\n{part}\nms" for name in shown for part in parts]
    heads = ["requests\n/s", "tokens\n/s", *times, "failed"]
    if console.width < NARROW:
        del heads[0]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for report in reports:
        summaries = [report.latency.get(name, Summary.of(())) for name in shown]
        times = [_ms(getattr(summary, part)) for summary in summaries for part in parts]
        rates = [report.per_s.requests, report.per_s.output_tokens or report.per_s.input_tokens]
        if console.width < NARROW:
            del rates[0]
        table.add_row(f"{report.amount:g}", *map(_rate, rates), *times, str(report.failed))
    console.print(table)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:.4g}"


def _ms(seconds: float) -> str:
    return "-" if seconds != seconds else f"{1000 * seconds:.2f}"  # noqa: PLR0124 - only NaN differs from itself
