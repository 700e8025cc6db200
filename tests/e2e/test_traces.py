"""Spans of a real server, at a real receiver of OTLP: of calls by both doors, streamed or not, failed or left."""

import json
import signal
import time
import urllib.request

import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client.openmetrics import parser

import weft
from otlp_receiver import attributes, receiving
from process import ServerProcess

pytestmark = pytest.mark.e2e
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
TRACEPARENT = ("traceparent", f"00-{TRACE}-{SPAN}-01")
CALLER = TracerProvider().get_tracer("caller")
TRANSLATE = "weft.v1.TranslationService/Translate"
FOUR = weft.Decoding(max_new_tokens=4, min_new_tokens=4)
LONG = weft.Decoding(max_new_tokens=250, min_new_tokens=250)
# Over a third of a second of work, on the fastest machine so far.
SLOW = weft.Decoding(max_new_tokens=250, min_new_tokens=250, strategy=weft.Beams(16))
STREAM = "weft.v1.GenerationService/StreamGenerate"


@pytest.fixture(scope="module")
def repository(demo_repository, tmp_path_factory):
    """A translator, a writer and a classifier."""
    repository = tmp_path_factory.mktemp("traces")
    for name in ("en-es", "pydocs", "topics"):
        (repository / name).symlink_to(demo_repository / name)
    return repository


@pytest.fixture
def receiver():
    """Where spans go."""
    with receiving() as receiver:
        yield receiver


def serving(monkeypatch, repository, receiver, **variables):
    """A server that traces."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.target, "OTEL_BSP_SCHEDULE_DELAY": "100"} | variables
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return ServerProcess(repository, api_port=0, access_log="all")


def by_http(server):
    """OpenAI's own client."""
    port = server.wait_for("listening")["api"]
    return openai.OpenAI(base_url=f"http://{port}/v1", api_key="-", max_retries=0)


def lies_within(inner, outer):
    """Whether one span begins and ends while another one goes on."""
    return (
        outer.start_time_unix_nano
        <= inner.start_time_unix_nano
        <= inner.end_time_unix_nano
        <= (outer.end_time_unix_nano)
    )


def test_a_call_is_a_span_of_its_callers_trace(monkeypatch, repository, receiver):
    """Its parent is the caller's span, which the SDK sends; its stages follow each other within it.

    The log has the trace, and so has an exemplar of the latency. What the variables say of the service is said.
    """
    named = {"OTEL_SERVICE_NAME": "translator", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
    with serving(monkeypatch, repository, receiver, **named) as server:
        server.wait_for("ready")
        with weft.Client(server.target) as client, CALLER.start_as_current_span("caller") as caller:
            answer = client.translate("the cat sees the dog", model="en-es", explain=True)
            list(client.stream_generate("def read", model="pydocs", decoding=FOUR))
        (span,) = receiver.wait_for(TRANSLATE)
        (stream,) = receiver.wait_for(STREAM)
        context = caller.get_span_context()
        for each in (span, stream):
            assert context.trace_id.to_bytes(16) == each.trace_id
            assert context.span_id.to_bytes(8) == each.parent_span_id
        stages = receiver.stages(span)
        assert ["preprocess", "queue", "encode", "prefill", "decode", "explain", "respond"] == list(stages)
        assert ["preprocess", "queue", "prefill", "decode", "respond"] == list(receiver.stages(stream))
        assert all(lies_within(stage, span) for stage in stages.values())
        assert {"translator"} == {resource["service.name"] for resource in receiver.resources}
        assert {"test"} == {resource["deployment.environment.name"] for resource in receiver.resources}
        expected = {
            "rpc.system.name": "grpc",
            "rpc.method": TRANSLATE,
            "rpc.response.status_code": "OK",
            "client.address": "127.0.0.1",
            "gen_ai.provider.name": "weft",
            "gen_ai.operation.name": "translate",
            "gen_ai.request.model": "en-es",
            "gen_ai.response.model": "en-es",
            "gen_ai.request.stream": False,
            "gen_ai.usage.input_tokens": answer.usage.input_tokens,
            "gen_ai.usage.output_tokens": answer.usage.output_tokens,
            "weft.model.version": "1",
            "weft.request_id": answer.request_id,
        }
        told = attributes(span)
        assert 0 < told.pop("gen_ai.response.time_to_first_chunk") < 60
        assert expected == told
        assert (4, True) == tuple(
            attributes(stream)[name] for name in ("gen_ai.usage.output_tokens", "gen_ai.request.stream")
        )
        server.wait_until(lambda: 2 == len(server.calls()), what="a line of each call")
        assert {f"{context.trace_id:032x}"} == {line["trace_id"] for line in server.calls()}
        page = server.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
        shown = {
            sample.name: sample.exemplar.labels["span_id"]
            for family in parser.text_string_to_metric_families(page)
            for sample in family.samples
            if sample.exemplar and sample.labels["model"] == "en-es"
        }
        names = ("request_duration", "queue_time", "time_to_first_token")
        assert {f"weft_{name}_seconds_bucket": span.span_id.hex() for name in names} == shown


def test_a_request_by_http_is_a_span_too(monkeypatch, repository, receiver):
    """By OpenAI's route, streamed or not, and several calls for a request; a classifier encodes and writes nothing."""
    with serving(monkeypatch, repository, receiver) as server:
        server.wait_for("ready")
        client = by_http(server)
        more = {"model": "pydocs", "max_tokens": 4, "extra_headers": dict([TRACEPARENT, ("tracestate", "other=1")])}
        client.completions.create(prompt=["def read", "def write"], **more)
        list(client.completions.create(prompt="def read", stream=True, **more))
        one, stream = receiver.wait_for("POST /v1/completions", 2)
        asked = urllib.request.Request(
            f"http://{server.wait_for('listening')['api']}/weft.v1.ClassificationService/Classify",
            json.dumps({"model": {"name": "topics"}, "text": "the goal"}).encode(),
            {"content-type": "application/json"},
        )
        urllib.request.urlopen(asked, timeout=60).read()
        (classified,) = receiver.wait_for("POST /weft.v1.ClassificationService/Classify")
    assert {(TRACE, SPAN)} == {(span.trace_id.hex(), span.parent_span_id.hex()) for span in (one, stream)}
    assert ("other=1", "", b"") == (one.trace_state, classified.trace_state, classified.parent_span_id)
    assert ["preprocess", "queue", "encode", "respond"] == list(receiver.stages(classified))
    told = attributes(one)
    expected = {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "text_completion",
        "gen_ai.usage.output_tokens": 8,
    }
    assert expected == {name: told[name] for name in expected}
    assert not [name for name in told if name.startswith("rpc.")]
    assert attributes(stream)["gen_ai.request.stream"]


def test_how_a_call_failed_is_on_its_span(monkeypatch, repository, receiver):
    """A caller's mistake has its reason, and is no failure of the server; so has one whose caller went. A late one is.

    By HTTP a path that is not there is not named.
    """
    with serving(monkeypatch, repository, receiver) as server:
        server.wait_for("ready")
        with weft.Client(server.target) as client:
            with pytest.raises(weft.Error):
                client.translate("x", model="none")
            with pytest.raises(weft.Error):
                client.generate("def read", model="pydocs", decoding=SLOW, timeout=0.15)
            with client.stream_generate("def read", model="pydocs", decoding=LONG) as stream:
                next(iter(stream))
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{server.wait_for('listening')['api']}/none", timeout=60)
        (unknown,) = receiver.wait_for(TRANSLATE)
        (late,) = receiver.wait_for("weft.v1.GenerationService/Generate")
        (gone,) = receiver.wait_for(STREAM)
        (nowhere,) = receiver.wait_for("GET")
    told = [
        (attributes(span).get("rpc.response.status_code"), attributes(span)["error.type"], span.status.code)
        for span in (unknown, late, gone, nowhere)
    ]
    assert [
        ("NOT_FOUND", "MODEL_NOT_FOUND", 0),
        ("DEADLINE_EXCEEDED", "DEADLINE", 2),
        ("CANCELLED", "CANCELLED", 0),
        (None, "METHOD_NOT_FOUND", 0),
    ] == told
    # It ended while it was written, or while the last of that was on its way.
    assert list(receiver.stages(gone))[-1] in {"decode", "respond"}
    assert "decode" in receiver.stages(gone)


def test_callers_say_what_is_sampled(monkeypatch, repository, receiver):
    """By default a caller's decision holds; of calls without one, as many as the variables say are sampled."""
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    with serving(monkeypatch, repository, receiver, **sampler) as server:
        server.wait_for("ready")
        with weft.Client(server.target) as client:
            client.classify("the goal", model="topics")
        with weft.Client(server.target, metadata=dict([TRACEPARENT])) as client:
            client.classify("the goal", model="topics")
        with weft.Client(server.target, metadata={"traceparent": f"00-{TRACE}-{SPAN}-00"}) as client:
            client.classify("the goal", model="topics")
        receiver.wait_for("respond")
        server.terminate()
    assert 1 == sum(span.name == "weft.v1.ClassificationService/Classify" for span in receiver.spans())
    assert ["", TRACE, TRACE] == [line["trace_id"] for line in server.calls()]


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_collector_that_takes_nothing_harms_no_call(monkeypatch, repository, receiver, is_dead):
    """Dead or slow: calls are answered, what waits is bounded, and the server ends in time, with code 0."""
    receiver.hangs.set()
    variables = {"OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32"}
    if is_dead:
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    with serving(monkeypatch, repository, receiver, **variables) as server:
        server.wait_for("ready")
        with weft.Client(server.target) as client:
            for _ in range(100):
                client.classify("the goal", model="topics")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert 0 == server.process.wait(60)
        assert time.monotonic() - began < 15
    assert any("export" in line["event"].lower() or "dropping" in line["event"] for line in server.log)


def test_what_is_left_is_sent_at_the_end(monkeypatch, repository, receiver):
    """A span that waits for others to be sent with is not lost."""
    with serving(monkeypatch, repository, receiver, OTEL_BSP_SCHEDULE_DELAY="600000") as server:
        server.wait_for("ready")
        with weft.Client(server.target) as client:
            client.classify("the goal", model="topics")
        assert [] == receiver.spans()
        server.process.send_signal(signal.SIGTERM)
        assert 0 == server.process.wait(60)
    receiver.wait_for("weft.v1.ClassificationService/Classify")
