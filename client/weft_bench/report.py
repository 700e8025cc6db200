"""What a load showed: counts, rates, latencies, the server's own times, and how late the generator was itself."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import isnan
from statistics import fmean
from typing import Any, Self

from weft_bench.load import Run
from weft_bench.record import Outcome, Record


@dataclass(frozen=True, slots=True)
class Summary:
    """What to know of many numbers; NaN everywhere but in `count` when there were none."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Sum up numbers, in any order."""
        found = sorted(values)
        if not found:
            return cls(0, math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)
        p50, p90, p95, p99 = (percentile(found, share) for share in (0.5, 0.9, 0.95, 0.99))
        return cls(len(found), fmean(found), p50, p90, p95, p99, found[-1])


def percentile(found: list[float], share: float) -> float:
    """Return the number below which `share` of the sorted numbers lie, linear between neighbours."""
    place = share * (len(found) - 1)
    below = math.floor(place)
    above = min(below + 1, len(found) - 1)
    return found[below] + (place - below) * (found[above] - found[below])


# The generator may be the bottleneck in two cases:
# 1. It used more than this share of a core.
BUSY_SHARE = 0.9
# 2. Its p99 of being late is more than both of these: seconds, and a share of the p99 that it adds to.
LATE_S = 0.002
LATE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Slo:
    """What an answer must keep to be good, in seconds; None for what may be anything."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def __bool__(self) -> bool:
        return (self.ttft, self.tpot, self.e2e) != (None, None, None)

    def is_met(self, record: Record) -> bool:
        """Tell whether a completed answer kept all of it; what it has no value for, it keeps."""
        pairs = ((self.ttft, record.ttft), (self.tpot, record.tpot), (self.e2e, record.e2e))
        return all(bound is None or value is None or value <= bound for bound, value in pairs)


@dataclass(frozen=True, slots=True)
class Failures:
    """Requests that failed the same way, and the message of the first."""

    status: str
    reason: str
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class Rates:
    """Each second, by the share of an answer's work that lay within the measured time; `good` kept the SLO."""

    requests: float
    input_tokens: float
    output_tokens: float
    good: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """One load. Latencies are of completed requests that were due within the measured time, in seconds.

    `latency` has e2e and for streams ttft, tpot, itl, gap; `server` has queue, prefill, decode; `generator` has late
    (sent after it was due) and lag (woken after it wanted to).
    """

    amount: float
    kind: str
    seconds: float
    interrupted: bool
    requests: int
    completed: int
    cancelled: int
    unfinished: int
    failed: int
    failures: tuple[Failures, ...]
    per_s: Rates
    good_share: float | None
    tokens_per_message: float | None
    latency: dict[str, Summary]
    server: dict[str, Summary]
    generator: dict[str, Summary]
    cpu_share: float
    warnings: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it: null where there is no number."""
        return {name: _without_nan(value) for name, value in asdict(self).items()}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and isnan(value) else value


def report_of(run: Run, slo: Slo) -> Report:
    """Sum a run up."""
    start = run.start
    stop = run.finished
    if run.plan.duration_s is not None:
        is_cut = run.interrupted or run.num_counted == run.plan.num_requests
        end = start + run.plan.duration_s
        stop = min(stop, end) if is_cut else end

    counted = [record for record in run.records if record.due >= start]
    by_outcome = {outcome: [r for r in counted if r.outcome is outcome] for outcome in Outcome}
    done = by_outcome[Outcome.COMPLETED]
    failed = by_outcome[Outcome.FAILED]
    latency = _latencies(done, streams=run.streams)
    sent = [record for record in counted if not isnan(record.sent)]  # Ctrl-C may come between due and sent
    generator = {"late": Summary.of(record.sent - record.due for record in sent), "lag": Summary.of(run.lags)}
    num_messages = sum(record.num_deltas for record in done)
    judged = len(done) + len(failed)

    return Report(
        amount=run.arrivals.amount,
        kind=run.arrivals.kind,
        seconds=max(0.0, stop - start),
        interrupted=run.interrupted,
        requests=len(counted),
        completed=len(done),
        cancelled=len(by_outcome[Outcome.CANCELLED]),
        unfinished=len(by_outcome[Outcome.UNFINISHED]),
        failed=len(failed),
        failures=_failures(failed),
        per_s=_rates(run.records, start, stop, slo),
        good_share=sum(map(slo.is_met, done)) / judged if slo and judged else None,
        tokens_per_message=sum(r.output_tokens for r in done) / num_messages if num_messages else None,
        latency=latency,
        server={part: Summary.of(getattr(r, part) for r in done) for part in ("queue", "prefill", "decode")},
        generator=generator,
        cpu_share=run.cpu_share,
        warnings=tuple(_warnings(run, latency, generator)),
    )


def _latencies(done: list[Record], *, streams: bool) -> dict[str, Summary]:
    """Sum up the latencies of completed requests.

    A `gap` is the time from one message with text to the next, as a reader sees it.
    An `itl` is a gap divided by the mean tokens of a message of that answer, the first message left out.
    For a message does not say how many tokens it holds, and may hold several.
    """
    found = {"e2e": Summary.of(record.e2e for record in done)}
    if not streams:
        return found
    gaps = [(gap, record.tokens_per_gap) for record in done for gap in record.gaps()]
    return {
        "ttft": Summary.of(record.ttft for record in done if record.ttft is not None),
        "tpot": Summary.of(record.tpot for record in done if record.tpot is not None),
        "itl": Summary.of(gap / num_tokens for gap, num_tokens in gaps),
        "gap": Summary.of(gap for gap, _ in gaps),
        **found,
    }


def _rates(records: list[Record], start: float, stop: float, slo: Slo) -> Rates:
    seconds = max(stop - start, 1e-9)
    done = [record for record in records if record.outcome is Outcome.COMPLETED]
    shares = [(record, record.share_of_work(start, stop)) for record in done]
    return Rates(
        requests=sum(share for _, share in shares) / seconds,
        input_tokens=sum(share * record.input_tokens for record, share in shares) / seconds,
        output_tokens=sum(share * record.output_tokens for record, share in shares) / seconds,
        good=sum(share for record, share in shares if slo.is_met(record)) / seconds if slo else None,
    )


def _failures(failed: list[Record]) -> tuple[Failures, ...]:
    kinds: dict[tuple[str, str], list[Record]] = {}
    for record in failed:
        kinds.setdefault((record.status, record.error.reason if record.error else ""), []).append(record)
    return tuple(
        Failures(status, reason, len(records), records[0].error.message if records[0].error else "")
        for (status, reason), records in sorted(kinds.items(), key=lambda each: -len(each[1]))
    )


def _warnings(run: Run, latency: dict[str, Summary], generator: dict[str, Summary]) -> list[str]:
    """Say where the figures are rather the generator's than the server's."""
    found = []
    first, each = (latency.get(name, latency["e2e"]).p99 for name in ("ttft", "gap"))
    for name, what, felt in (("late", "sent requests", first), ("lag", "saw answers", each)):
        late = generator[name].p99
        if late > max(LATE_S, LATE_SHARE * felt):
            found.append(f"the generator itself {what} late, p99 {1000 * late:.1f} ms: it may be the bottleneck")
    if run.cpu_share > BUSY_SHARE:
        found.append(f"the generator used {run.cpu_share:.0%} of a core: it may be the bottleneck")
    return found
