"""Metrics: one table, exact counts from many threads, gauges as they are at the scrape."""

import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser
from prometheus_client.parser import text_string_to_metric_families

from weft_server.sequence import Sequence
from weft_server.source import Ids
from weft_server.telemetry.engine_stats import EngineStats, Usage
from weft_server.telemetry.meters import Counter, Histogram
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage
from weft_server.telemetry.metrics_table import MODEL_LABELS, PREFIX, TABLE

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
STATS = EngineStats(3, 70, 1.5, 8, Usage(6, 32, 50, 200), 0.0, 7)


def _scrape(metrics: Metrics) -> dict[tuple, float]:
    """(sample name, model, version, task, other label values) to value, as Prometheus reads them."""
    text = MetricsPage(metrics).render()[1].decode()
    families = text_string_to_metric_families(text)
    seen = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = [sample.labels.pop(name) for name in MODEL_LABELS if name in sample.labels]
        seen[sample.name, *labels, *sample.labels.values()] = sample.value
    return seen


def test_the_documentation_lists_exactly_the_table():
    """docs/metrics.md has a row for each metric, with its kind, labels and help, in order."""
    expected = []
    for spec in TABLE:
        labels = (MODEL_LABELS if spec.per_model else ()) + ((spec.label,) if spec.label else ())
        expected.append(f"| `{PREFIX}{spec.name}` | {spec.kind} | {', '.join(labels)} | {spec.help} |")
    assert expected == re.findall(rf"^\| `{PREFIX}.*$", DOCS.read_text(), re.MULTILINE)


def test_names_follow_the_conventions():
    """Only counters end in _total, names are distinct, buckets sorted."""
    families = [spec.name.removesuffix("_total") for spec in TABLE]
    assert len(families) == len(set(families))
    for spec in TABLE:
        assert re.fullmatch(r"[a-z_]+", spec.name)
        assert (spec.kind == "counter") == spec.name.endswith("_total")
        assert (spec.kind == "histogram") == bool(spec.buckets)
        assert sorted(set(spec.buckets)) == list(spec.buckets)


def test_every_metric_is_exposed_and_nothing_else():
    """A scrape shows each metric of the table, those of the process, and no other."""
    metrics = Metrics()
    model = metrics.for_model("en-es", 1, "translate")
    model.watch(lambda: STATS)
    text = MetricsPage(metrics).render()[1].decode()
    ours = {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.startswith("process_")}
    assert {PREFIX + spec.name for spec in TABLE} == ours
    openmetrics = MetricsPage(metrics).render(OPENMETRICS)[1].decode()
    assert list(parser.text_string_to_metric_families(openmetrics))


def test_counters_carry_the_model_and_their_label():
    """What is counted on a model's metrics shows under its labels."""
    metrics = Metrics()
    model = metrics.for_model("en-es", 1, "translate")
    assert metrics.for_model("en-es", 1, "translate") is model
    model.generated_tokens.inc(7)
    model.finished("stop")
    model.cancelled("decode")
    model.cancelled("decode")
    metrics.count_load("refused")
    seen = _scrape(metrics)
    assert 7 == seen["weft_generated_tokens_total", "en-es", "1", "translate"]
    assert 1 == seen["weft_finished_total", "en-es", "1", "translate", "stop"]
    assert 2 == seen["weft_cancelled_total", "en-es", "1", "translate", "decode"]
    assert 0 == seen["weft_padding_tokens_total", "en-es", "1", "translate"]
    assert 1 == seen["weft_model_loads_total", "refused"]


def test_calls_are_counted_with_and_without_a_model():
    """Each RPC's end is counted once by code and in the duration; a reason counts as a rejection too."""
    metrics = Metrics()
    model = metrics.for_model("digits", 2, "classify_image")
    metrics.count_call(model, "OK", "", 0.25)
    metrics.count_call(None, "NOT_FOUND", "MODEL_NOT_FOUND", 0.001)
    seen = _scrape(metrics)
    assert 1 == seen["weft_requests_total", "digits", "2", "classify_image", "OK"]
    assert 0.25 == seen["weft_request_duration_seconds_sum", "digits", "2", "classify_image"]
    assert 1 == seen["weft_requests_total", "", "", "", "NOT_FOUND"]
    assert 1 == seen["weft_rejected_total", "", "", "", "MODEL_NOT_FOUND"]


def test_gauges_are_read_at_the_scrape():
    """Gauges show the engine as it is when Prometheus asks; times since start become times of day."""
    metrics = Metrics()
    model = metrics.for_model("en-es", 1, "translate")
    labels = ("en-es", "1", "translate")
    assert 0 == _scrape(metrics)["weft_model_ready", *labels]
    model.watch(lambda: STATS)
    model.explaining, model.constraining, model.adapting = 2, 4, 5
    model.set_ready()
    metrics.set_draining()
    now = time.time() - time.monotonic()
    seen = _scrape(metrics)
    expected = {
        "model_ready": 1,
        "requests_queued": 3,
        "queued_tokens": 70,
        "oldest_queued_seconds": 1.5,
        "requests_running": 8,
        "requests_explaining": 2,
        "requests_constraining": 4,
        "requests_adapting": 5,
        "decode_slots_used": 6,
        "decode_slots_max": 32,
        "kv_cache_utilization": 0.25,
    }
    assert expected == {name: seen[PREFIX + name, *labels] for name in expected}
    assert pytest.approx(now, abs=1) == seen["weft_scheduler_last_step_timestamp_seconds", *labels]
    assert 1 == seen[("weft_draining",)]


def test_every_gauge_of_a_model_has_a_value():
    """A gauge that is in the table alone would be exposed without a sample."""
    model = Metrics().for_model("en-es", 1, "translate")
    model.watch(lambda: STATS)

    assert {spec.name for spec in TABLE if spec.kind == "gauge" and spec.per_model} == set(model.gauges())


def test_a_sequence_is_observed_on_every_way_out():
    """A finished sequence shows its tokens and times; one that never was admitted only how long it waited."""
    metrics = Metrics()
    model = metrics.for_model("en-es", 1, "translate")
    done = Sequence("a", Ids(np.zeros(5, np.int64)), decoding=object())
    done.times.accepted, done.times.admitted, done.times.first_token, done.times.finished = 10.0, 10.5, 10.75, 12.0
    done.num_output_tokens = 9
    model.observe_sequence(done)
    waited = Sequence("b", Ids(np.zeros(5, np.int64)), decoding=object())
    waited.times.accepted, waited.times.finished = 10.0, 13.0
    model.observe_sequence(waited)
    seen = _scrape(metrics)
    expected = {
        "prompt_tokens_total": 5,
        "prefill_seconds_sum": 0.25,
        "time_to_first_token_seconds_sum": 0.75,
        "request_output_tokens_sum": 9,
        "queue_time_seconds_sum": 3,
    }
    assert expected == {name: seen[PREFIX + name, "en-es", "1", "translate"] for name in expected}


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, 1.5, 2.0, 4.0, 9.0]), st.integers(1, 40))))
def test_a_bulk_observation_is_that_many_single_ones(observations):
    """observe(value, n) equals n times observe(value), and a value on a bound is in that bound's bucket."""
    bulk, single = Histogram([1, 2, 4]), Histogram([1, 2, 4])
    for value, count in observations:
        bulk.observe(value, count)
        for _ in range(count):
            single.observe(value)
    assert single.snapshot() == bulk.snapshot()
    values = [value for value, count in observations for _ in range(count)]
    assert [sum(value <= bound for value in values) for bound in (1, 2, 4, 10)] == [n for _, n in bulk.snapshot()[0]]


def test_nothing_is_lost_between_threads():
    """Threads that count at once lose nothing."""
    counter, histogram = Counter(), Histogram([1])

    def work():
        for _ in range(20_000):
            counter.inc(2)
            histogram.observe(0.5, 3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 160_000 == counter.value
    assert ([("1.0", 240_000), ("+Inf", 240_000)], 120_000.0) == histogram.snapshot()
