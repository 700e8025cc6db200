"""Where spans go, by OpenTelemetry's variables; and that nothing of it is imported where nobody asks."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs

from weft_server.calls.call_spans import CallSpans
from weft_server.checks.settings import look_at_tracing
from weft_server.models.request_context import RequestContext
from weft_server.telemetry import tracing
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.tracing import Tracing, wish_of

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
TRACES_ENDPOINT = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}


@pytest.mark.parametrize(
    ("variables", "traces"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "weft"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        (ENDPOINT, True),
        (TRACES_ENDPOINT, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none"} | ENDPOINT, False),
        ({"OTEL_SDK_DISABLED": "true"} | ENDPOINT, False),
        ({"OTEL_SDK_DISABLED": "false"} | ENDPOINT, True),
    ],
)
def test_traces_are_on_if_asked_for(variables, traces):
    """By an exporter or an endpoint; OpenTelemetry's two ways to say no win."""
    assert (traces, "") == wish_of(variables)[:2]


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"} | ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"} | ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
    ],
)
def test_what_is_not_spoken_is_told(variables, named, monkeypatch):
    """With the variable. The server serves all the same, without traces."""
    assert named in wish_of(variables).why_not
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (finding,) = look_at_tracing(None)
    assert ("warning", "traces") == finding[:2]
    assert tracing.open_tracing(variables) is None


def test_what_opentelemetry_refuses_keeps_no_server_from_serving(monkeypatch):
    """A variable of its own with a wrong value: the log says it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli")
    with capture_logs() as logs:
        assert tracing.open_tracing(ENDPOINT) is None
    assert ["traces are not sent"] == [each["event"] for each in logs]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli", "traces are not sent"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "traces are not sent"),
        ("OTEL_TRACES_SAMPLER", "some", "sampler"),
        ("OTEL_BSP_SCHEDULE_DELAY", "late", "invalid literal"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no pair", "Header"),
        ("OTEL_RESOURCE_ATTRIBUTES", "stray", "attribute"),
    ],
)
def test_a_variable_that_opentelemetry_does_not_follow_is_told_before_the_start(name, value, said, monkeypatch, caplog):
    """With its name, and once: `--check` and the first lines of the log say it."""
    for each, text in (ENDPOINT | {name: value}).items():
        monkeypatch.setenv(each, text)
    (finding,) = look_at_tracing(None)
    assert ("warning", "traces", name) == (*finding[:2], finding.says.partition(":")[0])
    assert said in finding.says
    assert "" == caplog.text


@pytest.mark.parametrize("value", ["x-api-key SECRET", "a=b,x-api-key SECRET", "a=SECRET,no pair,c=SECRET"])
def test_headers_are_not_repeated(value, monkeypatch):
    """They may be secrets, and people show others what `--check` says."""
    for each, text in (ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": value}).items():
        monkeypatch.setenv(each, text)
    findings = list(look_at_tracing(None))

    assert "warning" == findings[0][0]
    assert "SECRET" not in "".join(finding.says for finding in findings)


def test_variables_that_are_followed_are_no_finding(monkeypatch):
    """Those of a collector, a sampler and a queue."""
    good = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5", "OTEL_BSP_MAX_QUEUE_SIZE": "4096"}
    for name, value in (ENDPOINT | good).items():
        monkeypatch.setenv(name, value)
    assert [("ok", "traces", "are sent by OTLP")] == [finding[:3] for finding in look_at_tracing(None)]


def test_a_tracestate_that_is_none_is_not_repeated(caplog):
    """OpenTelemetry warns with the text that a caller sent. Nothing of it comes to the log."""
    opened = tracing.open_tracing(ENDPOINT)
    try:
        call = RequestContext("Classify")
        call.traceparent, call.tracestate = f"00-{'a' * 32}-{'b' * 16}-01", "told by a stranger"
        CallSpans(opened.tracer).record(call, "OK", "")
    finally:
        opened.close()
    assert "stranger" not in caplog.text


def test_what_is_not_installed_is_told(monkeypatch):
    """With what installs it."""
    monkeypatch.setattr(tracing, "_PACKAGE", "no_such_package.of.anybody")
    assert tracing.open_tracing(ENDPOINT) is None
    assert "weft-serving[otel]" in wish_of(ENDPOINT).mend


@pytest.mark.parametrize("module", ["weft_server.app", "weft"])
def test_who_does_not_trace_imports_nothing(module):
    """Neither a server nor a client, whose calls have no header more."""
    says = (
        f"import sys, {module}, weft._trace_context as t; assert () == t.trace_headers(()); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert "[]" == subprocess.run([sys.executable, "-c", says], check=True, capture_output=True, text=True).stdout[:-1]


def test_the_end_waits_no_longer_than_it_may(monkeypatch):
    """For a collector that takes its time; then what is under way is cut off."""
    monkeypatch.setattr(tracing, "FLUSH_S", 0.01)
    cut_off = threading.Event()
    provider = SimpleNamespace(
        force_flush=lambda: cut_off.wait(60), shutdown=lambda: cut_off.wait(60), get_tracer=lambda _: None
    )
    began = time.monotonic()
    Tracing(provider, SimpleNamespace(shutdown=cut_off.set)).close()
    assert time.monotonic() - began < 30


def stages_of(call, code="OK"):
    """The names of the spans below that of a call, and their seconds from the call's arrival."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    CallSpans(provider.get_tracer("weft")).record(call, code, "")
    *stages, whole = exporter.get_finished_spans()
    began = whole.start_time
    return {
        each.name: (round((each.start_time - began) / 1e9, 3), round((each.end_time - began) / 1e9, 3))
        for each in stages
    }


def test_the_stages_of_a_request_follow_its_times():
    """One that an encoder read: each stage ends where the next begins."""
    call = RequestContext("Translate")
    call.started -= 10
    usage = call.usage
    usage.writes_text = True
    usage.read, usage.admitted, usage.encoded, usage.first_token, usage.finished, usage.explained = (
        call.started + second for second in (1, 2, 3, 4, 6, 7)
    )
    stages = stages_of(call)
    last = stages.pop("respond")
    expected = {
        "preprocess": (0, 1),
        "queue": (1, 2),
        "encode": (2, 3),
        "prefill": (3, 4),
        "decode": (4, 6),
        "explain": (6, 7),
    }
    assert expected == stages
    assert (7, pytest.approx(10, abs=1)) == last


def test_a_span_says_which_model_answered_and_whether_the_server_failed():
    """A caller's mistake is no failure of the server's. A call that reached no model names none."""

    def span(code, metrics):
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        call = RequestContext("StreamGenerate")
        call.metrics = metrics
        call.usage.input_tokens, call.usage.output_tokens = 3, 4
        CallSpans(provider.get_tracer("weft")).record(call, code, "WHY")
        return exporter.get_finished_spans()[-1]

    said = span("INTERNAL", Metrics().for_model("m", 7, "t"))
    named = {key.removeprefix("gen_ai."): value for key, value in said.attributes.items() if "gen_ai" in key}
    assert {
        "provider.name": "weft",
        "operation.name": "generate_content",
        "request.model": "m",
        "response.model": "m",
        "request.stream": True,
        "usage.input_tokens": 3,
        "usage.output_tokens": 4,
    } == named
    assert (False, "WHY") == (said.status.is_ok, said.status.description)
    refused = span("INVALID_ARGUMENT", None)
    assert not any("gen_ai" in key for key in refused.attributes)
    assert (StatusCode.UNSET, None) == (refused.status.status_code, refused.status.description)


@pytest.mark.parametrize(
    ("reached", "last"),
    [(0, None), (1, "queue"), (2, "prefill"), (3, "decode")],
    ids=["unread", "queue", "prefill", "decode"],
)
def test_a_request_that_is_given_up_ends_in_its_stage(reached, last):
    """The stage that it was in ends with it, and none follows."""
    call = RequestContext("Generate")
    call.started -= 10
    call.usage.writes_text = True
    for second, gate in list(enumerate(("read", "admitted", "first_token"), 1))[:reached]:
        setattr(call.usage, gate, call.started + second)
    stages = stages_of(call, "CANCELLED")
    assert (last, reached) == (next(reversed(stages), None), len(stages) - 1 if stages else 0)
    if last:
        assert pytest.approx(10, abs=1) == stages[last][1]


def test_a_probe_has_no_span():
    """Of health by the Open Inference Protocol."""
    assert CallSpans(TracerProvider().get_tracer("weft")).record(RequestContext("ServerLive"), "OK", "") is None
