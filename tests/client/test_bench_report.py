"""From records to a report: what is counted, what it is divided by, and what is said of the generator itself."""

import json
import math
from array import array
from random import Random
from statistics import quantiles
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from weft.exceptions import Overloaded
from weft_bench import tables
from weft_bench.arrivals import Closed, Open
from weft_bench.load import Plan, Run
from weft_bench.record import Outcome, Record
from weft_bench.report import Slo, Summary, report_of
from weft_bench.sweep_plot import plot_sweep


def completed(due, arrivals=(), *, sent=None, tokens=0, work=0.0, ended=None, ends_itself=False):
    """A record of an answer that came; its server's work is all decode."""
    return Record(
        due,
        due if sent is None else sent,
        ended if ended is not None else arrivals[-1],
        array("d", arrivals),
        Outcome.COMPLETED,
        input_tokens=10,
        output_tokens=tokens,
        ends_itself=ends_itself,
        decode=work,
    )


def ran(*records, start=0.0, finished=10.0, arrivals=None, **plan):
    """A run that has ended."""
    streams = any(record.arrivals for record in records)
    run = Run(arrivals or Closed(1), Plan(**plan), streams, start=start, finished=finished, records=list(records))
    for record in records:
        run.num_counted += record.due >= start
        run.end(record)
    return run


def test_percentiles_lie_between_neighbours():
    """They agree with the standard library's, and a single number is all of its percentiles."""
    values = [Random(5).expovariate(1.0) for _ in range(500)]
    hundredths = quantiles(values, n=100, method="inclusive")
    summary = Summary.of(values)

    assert pytest.approx((hundredths[49], hundredths[89], hundredths[94], hundredths[98], max(values))) == (
        summary.p50,
        summary.p90,
        summary.p95,
        summary.p99,
        summary.max,
    )
    assert Summary(1, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0) == Summary.of([3.0])
    assert 0 == Summary.of([]).count
    assert math.isnan(Summary.of([]).p99)


def test_latency_counts_from_when_it_was_due():
    """A request that was sent late waited from when it was due: TTFT and e2e hold it, and the lateness is told."""
    report = report_of(ran(completed(1.0, [3.5, 4.0, 4.0], sent=3.0, tokens=2)), Slo())

    assert (2.5, 3.0) == (report.latency["ttft"].max, report.latency["e2e"].max)
    assert 2.0 == report.generator["late"].max


def test_a_gap_is_shared_by_the_tokens_of_a_message():
    """One token and then six in two messages: a gap is three token gaps; the last token of all has no text."""
    whole = completed(0.0, [1.0, 4.0, 10.0, 10.0], tokens=7)
    ended = completed(0.0, [1.0, 4.0, 10.0, 10.0], tokens=8, ends_itself=True)
    for record in (whole, ended):
        report = report_of(ran(record), Slo())

        assert (3.0, 6.0) == tuple(record.gaps())
        assert (2.0, 1.5) == (report.latency["itl"].max, report.latency["itl"].mean)
        assert 6.0 == report.latency["gap"].max
        assert 9 / (record.output_tokens - 1) == report.latency["tpot"].mean


def test_a_unary_call_has_no_first_message():
    """Without messages there is e2e alone, and a single token has no time for each further one."""
    assert {"e2e"} == set(report_of(ran(completed(0.0, ended=1.0, tokens=5)), Slo()).latency)
    assert 0 == report_of(ran(completed(0.0, [1.0, 1.0], tokens=1)), Slo()).latency["tpot"].count


def test_what_warms_up_does_not_count():
    """Requests due before the measured time are in no count and no latency, but what they do in it is in the rate."""
    report = report_of(
        ran(
            completed(0.0, ended=3.0, work=2.0, tokens=8), completed(3.0, ended=4.0, work=1.0), start=2.0, finished=4.0
        ),
        Slo(),
    )

    assert (1, 1, 1.0) == (report.requests, report.latency["e2e"].count, report.latency["e2e"].max)
    assert pytest.approx(1.5 / 2.0) == report.per_s.requests
    assert pytest.approx(4 / 2.0) == report.per_s.output_tokens


def test_work_over_the_edge_counts_in_part():
    """Answers that end in step give the same rate wherever the measured time ends: each counts by its work within."""
    waves = [completed(at, ended=at + 4.0, work=4.0, tokens=40) for at in (0.0, 4.0, 8.0, 12.0) for _ in range(8)]
    for duration in (6.0, 8.0, 9.0, 11.5):
        report = report_of(ran(*waves, finished=16.0, duration_s=duration), Slo())

        assert pytest.approx((2.0, 80.0)) == (report.per_s.requests, report.per_s.output_tokens)
        assert duration == report.seconds


def test_an_open_loop_is_measured_for_its_whole_time():
    """A rate is over the time that was asked for, also when nothing was due in its last part."""
    report = report_of(
        ran(completed(1.0, ended=2.0, work=1.0), finished=2.0, arrivals=Open(1.0), duration_s=4.0), Slo()
    )

    assert (4.0, 0.25) == (report.seconds, report.per_s.requests)


def test_with_a_number_of_requests_the_last_answer_ends_it():
    """However long was asked for, the time is from the first to the last answer once all requests were sent."""
    records = [completed(0.0, ended=2.0, work=2.0), completed(2.0, ended=4.0, work=2.0)]
    for plan in ({}, {"duration_s": 100.0}):
        assert 4.0 == report_of(ran(*records, finished=4.0, num_requests=2, **plan), Slo()).seconds


def test_the_last_end_is_the_end_of_a_run():
    """A run has finished when its last request ended, however long a refused caller still waits; the order is free."""
    run = Run(Closed(2), Plan(num_requests=2))
    first, last = run.begin(0.0), run.begin(0.5)
    for record, ended, outcome in ((last, 3.0, Outcome.FAILED), (first, 2.0, Outcome.COMPLETED)):
        record.ended, record.outcome = ended, outcome
        run.end(record)

    assert 3.0 == report_of(run, Slo()).seconds


def test_a_request_that_was_due_and_never_sent_is_not_late():
    """Ctrl-C between the two leaves it unfinished, and the generator's lateness a number."""
    report = report_of(ran(completed(0.0, ended=1.0, sent=0.25), Record(0.5)), Slo())

    assert (2, 1, 1, 0.25) == (
        report.requests,
        report.unfinished,
        report.generator["late"].count,
        report.generator["late"].max,
    )


def test_cancelled_and_failed_are_counted_apart():
    """Neither is in a latency or a rate; failures are told by status and reason, the most frequent first."""
    refused = [
        Record(0.0, 0.0, 0.1, outcome=Outcome.FAILED, status="RESOURCE_EXHAUSTED", error=error)
        for error in (Overloaded("full", reason="QUEUE_FULL"), Overloaded("again", reason="QUEUE_FULL"))
    ]
    gone = Record(0.0, 0.0, 0.1, outcome=Outcome.FAILED, status="UNAVAILABLE", error=Overloaded("gone"))
    cancelled = Record(0.0, 0.0, 9.0, array("d", [8.0]), Outcome.CANCELLED)
    left = Record(1.0, 1.0)
    report = report_of(ran(gone, *refused, cancelled, left, completed(0.0, [0.5, 1.0], tokens=2)), Slo(e2e=2.0))

    assert (6, 1, 1, 3, 1) == (
        report.requests,
        report.completed,
        report.cancelled,
        report.failed,
        report.unfinished,
    )
    assert [("RESOURCE_EXHAUSTED", "QUEUE_FULL", 2, "full"), ("UNAVAILABLE", "", 1, "gone")] == [
        (each.status, each.reason, each.count, each.message) for each in report.failures
    ]
    assert (1.0, 0.1, 0.25) == (report.latency["e2e"].max, report.per_s.requests, report.good_share)


def test_goodput_is_what_kept_every_bound():
    """One of four begins late, one is slow, one ends late, one is good; without bounds there is no goodput."""
    records = [
        completed(0.0, [2.0, 2.0, 2.5], tokens=6),
        completed(0.0, [0.5, 2.0, 3.5], tokens=4),
        completed(0.0, [0.5, 2.0, 5.5], tokens=51),
        completed(0.0, [0.5, 1.0, 1.5], tokens=11),
    ]
    report = report_of(ran(*records), Slo(ttft=1.0, tpot=0.2, e2e=4.0))

    assert (0.4, 0.1, 0.25) == (report.per_s.requests, report.per_s.good, report.good_share)
    assert (None, None) == (report_of(ran(*records), Slo()).per_s.good, report_of(ran(*records), Slo()).good_share)


def test_a_slow_generator_is_warned_of():
    """Sent late, woken late or out of processor: each is said; otherwise nothing is."""
    fine, late = (completed(0.0, [1.0, 1.2, 1.4, 1.4], sent=sent, tokens=3) for sent in (0.001, 0.6))

    assert () == report_of(ran(fine), Slo()).warnings
    assert "sent requests late" in report_of(ran(late), Slo()).warnings[0]
    run = ran(fine)
    run.lags, run.cpu_share = [0.3], 0.95
    woken, busy = report_of(run, Slo()).warnings
    assert "saw answers late, p99 300.0 ms" in woken
    assert "95% of a core" in busy


def test_a_report_is_json():
    """Also when nothing completed: what is no number is null."""
    plain = json.loads(json.dumps(report_of(ran(), Slo(ttft=1.0)).plain(), allow_nan=False))

    assert (0, None, 0.0) == (plain["completed"], plain["latency"]["e2e"]["p99"], plain["per_s"]["good"])
    streamed = report_of(Run(Closed(1), Plan(), streams=True), Slo()).plain()["latency"]
    assert dict.fromkeys(("ttft", "itl", "gap", "tpot", "e2e")) == {
        name: figures["p50"] for name, figures in streamed.items()
    }


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_no_number_is_cut(monkeypatch, capsys, columns):
    """A narrow terminal gets fewer columns, and what it gets is whole."""
    monkeypatch.setattr(tables, "_console", lambda: Console(width=columns))
    times = [0.1, 0.2, 1.2345]
    report = report_of(ran(completed(0.0, times, ended=1.2345, tokens=2, work=0.1), arrivals=Closed(128)), Slo())
    tables.print_report(report, "a")
    tables.print_sweep([report, report], "a")
    out = capsys.readouterr().out
    assert "\u2026" not in out
    assert "1234.50" in out
    assert "128" in out


@pytest.mark.parametrize("streams", [True, False])
def test_a_sweep_is_a_picture(tmp_path, streams):
    """A panel for the throughput and one for each latency; a place for each load, least first, a point if any came."""
    reports = []
    for concurrency in (4, 1, 2):
        times = [0.1 * concurrency, 0.2 * concurrency, 0.3 * concurrency] if streams else []
        records = [completed(0.0, times, ended=0.3 * concurrency, tokens=2 * streams, work=0.1)] * (concurrency != 2)
        reports.append(report_of(ran(*records, arrivals=Closed(concurrency)), Slo()))
    figure = plot_sweep(reports, tmp_path / "sweep.svg", title="a $ b")

    ET.parse(tmp_path / "sweep.svg")
    throughput, *latencies = figure.axes
    assert (3 if streams else 1) == len(latencies)
    assert [0, 1, 2] == list(throughput.lines[0].get_xdata())
    for ax in figure.axes:
        assert ["1", "2", "4"] == [label.get_text() for label in ax.get_xticklabels()]
        left, right = ax.get_xlim()
        assert left < 0
        assert right > 2
    for ax in latencies:
        assert "log" == ax.get_yscale()
        assert [[0, 2], [0, 2]] == [list(line.get_xdata()) for line in ax.lines]


def test_a_sweep_in_which_nothing_came_is_a_picture(tmp_path):
    """Empty panels, no error."""
    plot_sweep([report_of(ran(arrivals=Closed(1)), Slo())], tmp_path / "sweep.svg", title="a")

    ET.parse(tmp_path / "sweep.svg")
