"""The page of metrics: short where nothing was asked, and always as if it were written anew."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.samples import Exemplar

from weft_server.telemetry.engine_stats import EngineStats, Usage
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage
from weft_server.telemetry.metrics_table import AT_ZERO, FAILURES, FAULTS, TABLE

FORMATS = ("text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0")
GAUGES = [spec.name for spec in TABLE if spec.kind == "gauge" and spec.per_model]
# What may befall a model.
EVENTS = {
    "answered": lambda metrics, model: metrics.count_call(model, "OK", "", 0.2),
    "refused": lambda metrics, model: metrics.count_call(model, "INVALID_ARGUMENT", "BAD", 0.1),
    "stepped": lambda metrics, model: model.decode_step.observe(0.01, 3),
    "traced": lambda metrics, model: model.queue_time.exemplify(Exemplar({"trace_id": "ab"}, 0.3, 5.0)),
    "waited": lambda metrics, model: model.queue_time.observe(0.3),
    "ready": lambda metrics, model: model.set_ready(),
    "asleep": lambda metrics, model: model.sleep(),
    "awake": lambda metrics, model: model.watch(_stats),
    "gone": lambda metrics, model: metrics.forget(model.name, 1),
    "nothing": lambda metrics, model: None,
}


def _stats():
    return EngineStats(3, 70, 1.5, 8, Usage(6, 32, 50, 200), 0.0, 7)


def _lines_of(page, name, accept=""):
    """The lines of a model, without when its lane moved last, which the clock changes."""
    text = page.render(accept)[1].decode()
    return [line for line in text.splitlines() if f'model="{name}"' in line and "last_step_timestamp" not in line]


def test_a_model_that_was_asked_nothing_has_no_histogram():
    """A line for each gauge, and each counter that has no label, at 0: what grows is seen from the first on.

    So it is with the labels that an alert looks at.
    """
    metrics = Metrics()
    page, model = MetricsPage(metrics), metrics.for_model("idle", 1, "generate")
    model.watch(_stats)
    model.set_ready()
    lines = _lines_of(page, "idle")
    shown = [re.match(r"weft_([a-z_]+)\{", line).group(1) for line in lines]
    counters = {spec.name for spec in TABLE if spec.kind == "counter" and spec.per_model and not spec.label}
    expected = counters | set(AT_ZERO) | set(GAUGES) - {"scheduler_last_step_timestamp_seconds"}

    assert expected == set(shown)
    failures = [re.search(r'reason="(\w+)".* 0\.0$', line).group(1) for line in lines if "failures_total" in line]
    assert list(FAILURES) == failures
    codes = [re.search(r'code="(\w+)".* 0\.0$', line).group(1) for line in lines if "requests_total" in line]
    assert list(FAULTS) == codes

    metrics.count_call(model, "OK", "", 0.25)
    lines = _lines_of(page, "idle")

    assert 'weft_requests_total{code="OK",model="idle",task="generate",version="1"} 1.0' in lines
    assert 'weft_generated_tokens_total{model="idle",task="generate",version="1"} 0.0' in lines
    assert 'weft_request_duration_seconds_count{model="idle",task="generate",version="1"} 1.0' in lines
    assert not [line for line in lines if line.startswith("weft_decode_step_seconds")]


def test_a_call_of_no_model_that_fails_is_seen_from_the_first_on():
    """Its codes are there at 0, and nothing else without a model."""
    lines = _lines_of(MetricsPage(Metrics()), "")

    assert [f'weft_requests_total{{code="{code}",model="",task="",version=""}} 0.0' for code in FAULTS] == lines


def test_a_page_asks_once():
    """What lies beside the models is read once a page, however many metrics show it, so that all agree."""
    metrics, asked = Metrics(), []
    for name, answer in {
        "traffic": {"connections": 3},
        "tenant_usage": [("ann", "m", {"tenant_requests_total": 2})],
        "claimed_bytes": {"0": 9},
        "log_events_dropped": 4,
    }.items():
        setattr(metrics, name, lambda name=name, answer=answer: asked.append(name) or answer)
    lines = MetricsPage(metrics).render()[1].decode().splitlines()

    assert ["claimed_bytes", "log_events_dropped", "tenant_usage", "traffic"] == sorted(asked)
    assert {
        "weft_connections 3.0",
        'weft_tenant_requests_total{model="m",tenant="ann"} 2.0',
        'weft_tenant_output_tokens_total{model="m",tenant="ann"} 0.0',
        'weft_device_claimed_bytes{device="0"} 9.0',
        "weft_log_events_dropped_total 4.0",
    } <= set(lines)


@settings(max_examples=10)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.sampled_from("ab"), st.sampled_from(FORMATS)), max_size=6)
)
def test_what_is_kept_is_what_would_be_written(events):
    """Whatever befell the models between scrapes, a page is the one of a server that was never asked before."""
    metrics = Metrics()
    page = MetricsPage(metrics)
    for event, name, accept in events:
        EVENTS[event](metrics, metrics.for_model(name, 1, "generate"))
        kept = _lines_of(page, "a", accept) + _lines_of(page, "b", accept)
        for model in metrics.models.values():
            model.lines.clear()

        assert _lines_of(page, "a", accept) + _lines_of(page, "b", accept) == kept


@pytest.mark.parametrize("accept", FORMATS)
def test_new_numbers_in_known_lines_are_as_the_library_writes_them(accept):
    """Numbers that change, a label that is new, and traces that come: each page is as if all were written anew."""
    metrics = Metrics()
    page, model = MetricsPage(metrics), metrics.for_model('a "model" of mine', 1, "generate")
    model.watch(_stats)
    model.set_ready()
    trace = Exemplar({"trace_id": "ab"}, 0.3, 5.0)
    for event in (
        lambda: metrics.count_call(model, "OK", "", 0.25),
        lambda: metrics.count_call(model, "OK", "", 1e7 / 3),
        lambda: metrics.count_call(model, "INVALID_ARGUMENT", "BAD", 0.001),
        lambda: model.generated_tokens.inc(12345678),
        lambda: model.request_duration.exemplify(trace),
        lambda: metrics.count_call(model, "OK", "", 0.3),
        lambda: model.prefix_cache_bytes.add(0.1),
    ):
        event()
        kept = page.render(accept)[1].decode().splitlines()
        model.lines.clear()
        anew = page.render(accept)[1].decode().splitlines()

        # Those of the process, and when a lane moved last, are of the moment.
        of_a_moment = ("process_", "weft_scheduler_last_step")
        assert [line for line in anew if not line.startswith(of_a_moment)] == [
            line for line in kept if not line.startswith(of_a_moment)
        ]


def test_nothing_is_written_twice():
    """A second page takes the lines of all models that did nothing meanwhile, and of metrics that did not change."""
    metrics = Metrics()
    page = MetricsPage(metrics)
    for index in range(5):
        model = metrics.for_model(f"m{index}", 1, "generate")
        model.set_ready()
        metrics.count_call(model, "OK", "", 0.2)
    page.render()
    kept = _kept(metrics)
    metrics.count_call(metrics.for_model("m3", 1, "generate"), "OK", "", 0.2)
    page.render()
    changed = {key for key, lines in _kept(metrics).items() if kept[key] is not lines}

    assert {("m3", "requests_total"), ("m3", "request_duration_seconds")} == changed


def _kept(metrics):
    """The lines that each model keeps, by its name and the metric's."""
    models = metrics.models.values()
    return {(model.name, name): lines for model in models for (_, name), (_, lines, *_) in model.lines.items()}


def test_headers_take_no_memory():
    """A scraper may ask for any version, and the lines of a few formats are kept."""
    metrics = Metrics()
    page, model = MetricsPage(metrics), metrics.for_model("a", 1, "generate")
    metrics.count_call(model, "OK", "", 0.2)
    for version in range(100):
        page.render(f"application/openmetrics-text; version=1.0.{version}")

    assert len(model.lines) <= 3 * len(TABLE)
