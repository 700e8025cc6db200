"""Bad input gets a clear typed error and harms nobody else, through the real process and on the raw wire."""

import re
import socket
import struct
import threading
import wave
from io import BytesIO
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

import weft
from hostile_decodings import FREE, every_refusal, fields_of
from on_the_wire import sized
from pictures import huge_header, png
from weft_proto.v1 import (
    classification_pb2,
    common_pb2,
    generation_pb2,
    generation_pb2_grpc,
    score_pb2,
    score_pb2_grpc,
    translation_pb2,
    translation_pb2_grpc,
)

pytestmark = pytest.mark.e2e
# What is 0 where nothing is left of a request.
IDLE = ("weft_decode_slots_used", "weft_requests_running", "weft_requests_queued", "weft_queued_tokens")


def silence(seconds):
    """A WAV of it: 4,000 samples of one byte each second."""
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 1, 4000, 0, "NONE", ""))
        out.writeframes(b"\x80" * 4000 * seconds)
    return file.getvalue()


def bad_calls(client):
    """(what is wrong, reason, field, the call): all refused with InvalidRequest."""

    def decode(**decoding):
        return lambda: client.generate("def", decoding=weft.Decoding(**decoding))

    def sample(**sampling):
        return decode(strategy=weft.Sampling(**sampling))

    return [
        ("empty text", "EMPTY_INPUT", "text", lambda: client.translate("")),
        ("blank text", "EMPTY_INPUT", "text", lambda: client.translate(" \n\t ")),
        ("empty prompt", "EMPTY_INPUT", "text", lambda: client.generate("")),
        ("text over the limit", "INPUT_TOO_LONG", "text", lambda: client.translate("we are eating bread " * 50)),
        ("text far over the limit", "INPUT_TOO_LONG", "text", lambda: client.translate("a" * 1_000_000)),
        ("no token ids", "EMPTY_INPUT", "token_ids.ids", lambda: client.generate([])),
        (
            "token id out of range",
            "TOKEN_OUT_OF_RANGE",
            "token_ids.ids[1]",
            lambda: client.generate([1, 4_000_000_000]),
        ),
        ("temperature below 0", "INVALID_FIELD", "decoding.sampling.temperature", sample(temperature=-1.0)),
        ("temperature nan", "INVALID_FIELD", "decoding.sampling.temperature", sample(temperature=float("nan"))),
        ("temperature inf", "INVALID_FIELD", "decoding.sampling.temperature", sample(temperature=float("inf"))),
        ("top_p 0", "INVALID_FIELD", "decoding.sampling.top_p", sample(top_p=0.0)),
        ("top_p over 1", "INVALID_FIELD", "decoding.sampling.top_p", sample(top_p=1.5)),
        ("0 new tokens", "INVALID_FIELD", "decoding.max_new_tokens", decode(max_new_tokens=0)),
        ("too many new tokens", "INVALID_FIELD", "decoding.max_new_tokens", decode(max_new_tokens=100_000)),
        ("min over max", "INVALID_FIELD", "decoding.min_new_tokens", decode(max_new_tokens=2, min_new_tokens=3)),
        ("five stop strings", "INVALID_FIELD", "decoding.stop", decode(stop=tuple("abcde"))),
        ("empty stop string", "INVALID_FIELD", "decoding.stop[1]", decode(stop=("a", ""))),
        ("long stop string", "INVALID_FIELD", "decoding.stop[0]", decode(stop=("é" * 33,))),
        ("unknown language", "INVALID_FIELD", "target_language", lambda: client.translate("a", target_language="xx")),
        ("long request id", "INVALID_FIELD", "request_id", lambda: client.translate("a", request_id="x" * 65)),
        ("unprintable id", "INVALID_FIELD", "request_id", lambda: client.translate("a", request_id="a\nb")),
        ("not an image", "BAD_IMAGE", "image.data", lambda: client.caption(b"hello, world" * 9)),
        ("no bytes", "EMPTY_INPUT", "image.data", lambda: client.caption(b"")),
        ("truncated PNG", "BAD_IMAGE", "image.data", lambda: client.classify(image=png(64, 64)[:-30])),
        ("30,000 x 30,000", "IMAGE_TOO_LARGE", "image.data", lambda: client.classify(image=huge_header())),
        ("a file too large", "IMAGE_TOO_LARGE", "image.data", lambda: client.classify(image=png() + bytes(9 << 20))),
        ("a question about nothing", "EMPTY_INPUT", "image.data", lambda: client.answer(b"", "how many?")),
        ("a question about no picture", "BAD_IMAGE", "image.data", lambda: client.answer(b"\1" * 99, "how many?")),
        ("no question", "EMPTY_INPUT", "text", lambda: client.answer(png(), " ")),
        ("a long question", "INPUT_TOO_LONG", "text", lambda: client.answer(png(), "star " * 33)),
        ("a very long question", "INPUT_TOO_LONG", "text", lambda: client.answer(png(), "star " * 200_000)),
        ("a question's wrong token", "TOKEN_OUT_OF_RANGE", "token_ids.ids[0]", lambda: client.answer(png(), [9999])),
        (
            "a question to a captioner",
            "WRONG_INPUT_KIND",
            "model.name",
            lambda: client.answer(png(), "how many?", model="scenes"),
        ),
        ("not a recording", "BAD_AUDIO", "audio.data", lambda: client.transcribe(b"hello, world" * 9)),
        ("no sound", "EMPTY_INPUT", "audio.data", lambda: client.transcribe(b"")),
        ("a header alone", "BAD_AUDIO", "audio.data", lambda: client.transcribe(b"RIFF\x10\0\0\0WAVE")),
        ("eleven minutes", "AUDIO_TOO_LONG", "audio.data", lambda: client.transcribe(silence(660))),
        ("top_k 0", "INVALID_FIELD", "top_k", lambda: client.classify(image=png(), top_k=0)),
        ("top_k over the labels", "INVALID_FIELD", "top_k", lambda: client.classify(image=png(), top_k=11)),
        ("a version of no model", "MODEL_REQUIRED", "model.name", lambda: client.translate("a", model_version=99)),
        ("tokens of a picture", "WRONG_INPUT_KIND", "side", lambda: client.tokenize("a", model="scenes", side="input")),
        ("tokens of a giant", "INPUT_TOO_LONG", "text", lambda: client.tokenize("a" * 1_000_000, model="en-es")),
        ("no token", "TOKEN_OUT_OF_RANGE", "token_ids[1]", lambda: client.detokenize([5, 99_999], model="en-es")),
        ("a captioner to translate", "WRONG_INPUT_KIND", "model.name", lambda: client.translate("a", model="scenes")),
    ]


def test_every_bad_input_gets_its_typed_error(client):
    """The exception, its reason and the field it names, for each kind of mistake."""
    for what, reason, field, call in bad_calls(client):
        with pytest.raises(weft.InvalidRequest) as refused:
            call()
        fields = [violation.field for violation in refused.value.field_violations]
        assert (what, reason, [field]) == (what, refused.value.reason, fields)


def test_every_field_of_a_decoding_is_refused_somewhere():
    """Each field has a row in the table of refusals, unless it takes any value: a new one too."""
    refused = {re.sub(r"\[\d+\]", "", field) for field, *_ in every_refusal()}
    paths = {path for path in fields_of() if path not in FREE}

    assert set() == {path for path in paths if not {f"decoding.{path}", f"decoding.{path}.ids"} & refused}


def test_every_hostile_decoding_is_refused_by_its_field(server, client):
    """Alone and contradicting each other, in what produces and what scores. Nothing is left of them."""
    good = [weft.Decoding(max_new_tokens=9), weft.Decoding(max_new_tokens=9, strategy=weft.Beams(num_beams=3))]
    before = [client.generate("def", decoding=each).token_ids for each in good]
    with grpc.insecure_channel(server.target) as channel:
        calls = {
            generation_pb2.GenerateRequest: generation_pb2_grpc.GenerationServiceStub(channel).Generate,
            translation_pb2.TranslateRequest: translation_pb2_grpc.TranslationServiceStub(channel).Translate,
            score_pb2.ScoreRequest: score_pb2_grpc.ScoreServiceStub(channel).Score,
        }
        for field, said, reason, request in every_refusal():
            call = calls[type(request)].future(request, timeout=30)
            assert (grpc.StatusCode.INVALID_ARGUMENT, request) == (call.code(), request)
            fields = [each.field for each in details_of(call, error_details_pb2.BadRequest).field_violations]
            assert ([field], reason) == (fields, reason_of(call)), call.details()
            assert said in call.details()

    assert {name for name, _ in server.metrics()} >= set(IDLE)
    server.wait_until(lambda: not any(map(server.metric, IDLE)), what="idleness")
    assert before == [client.generate("def", decoding=each).token_ids for each in good]


def test_unknown_models_and_versions_are_not_found(client):
    """NotFound for a name, and for a version of a model that exists."""
    for call in (
        lambda: client.translate("a", model="nope"),
        lambda: client.translate("a", model="en-es", model_version=99),
        lambda: client.get_model("nope"),
        lambda: client.get_model("en-es", 99),
    ):
        with pytest.raises(weft.NotFound):
            call()


def test_bad_bytes_on_the_wire_are_the_callers_error(server):
    """No input, bytes that are no message, text that is not UTF-8: the caller's error, never ours."""
    identity = {"request_serializer": lambda data: data, "response_deserializer": lambda data: data}
    truncated = translation_pb2.TranslateRequest(text="we are").SerializeToString()[:-1]
    not_utf8 = b"\x12\x02\xff\xfe"  # field 2, text, two bytes that no UTF-8 text has
    cases = [
        ("TranslationService/Translate", b"", "EMPTY_INPUT"),
        ("CaptionService/Caption", b"", "EMPTY_INPUT"),
        ("AnswerService/Answer", b"", "EMPTY_INPUT"),
        ("TranscriptionService/Transcribe", b"", "EMPTY_INPUT"),
        ("ClassificationService/Classify", b"", "EMPTY_INPUT"),
        ("GenerationService/Generate", b"", "EMPTY_INPUT"),
        ("ScoreService/Score", b"", "MODEL_REQUIRED"),
        ("TokenizationService/Tokenize", b"", "MODEL_REQUIRED"),
        ("TokenizationService/Detokenize", b"", "MODEL_REQUIRED"),
        ("TokenizationService/Tokenize", not_utf8, "MALFORMED_REQUEST"),
        ("EmbeddingService/Embed", b"", "EMPTY_INPUT"),
        ("EmbeddingService/Embed", b"\x12\x00" * 400, "INPUT_TOO_LONG"),
        ("ClassificationService/Classify", b"\x4a\x00" * 1200, "INPUT_TOO_LONG"),
        ("ModelService/GetModel", b"", "MODEL_REQUIRED"),
        ("TranslationService/Translate", truncated, "MALFORMED_REQUEST"),
        ("TranslationService/Translate", not_utf8, "MALFORMED_REQUEST"),
        ("GenerationService/Generate", not_utf8, "MALFORMED_REQUEST"),
        ("ClassificationService/Classify", not_utf8, "MALFORMED_REQUEST"),
    ]
    with grpc.insecure_channel(server.target) as channel:
        for method, data, reason in cases:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(f"/weft.v1.{method}", **identity)(data, timeout=10)
            assert (method, grpc.StatusCode.INVALID_ARGUMENT) == (method, refused.value.code())
            assert (method, reason) == (method, reason_of(refused.value))
        stream = channel.unary_stream("/weft.v1.TranslationService/StreamTranslate", **identity)
        with pytest.raises(grpc.RpcError) as refused:
            list(stream(b"\x0a\x04" + not_utf8, timeout=10))
        assert "MALFORMED_REQUEST" == reason_of(refused.value)


def full_of_fields():
    """(field that is refused, reason, method, message): about 15 MiB each, in fields of a few bytes."""
    some = 7 << 20
    picture = sized(2, sized(1, png()))
    return [
        ("decoding.bias", "INVALID_FIELD", "CaptionService/Caption", picture + sized(3, b"\x52\0" * 7_864_320)),
        ("decoding.stop", "INVALID_FIELD", "CaptionService/Caption", picture + sized(3, b"\x1a\0" * some)),
        ("decoding.greedy", "INVALID_FIELD", "AnswerService/Answer", picture + sized(5, b"\x22\0\x2a\0" * (some >> 1))),
        ("request.image", "INVALID_FIELD", "CaptionService/StreamCaption", sized(1, b"\x12\0" * some)),
        ("decoding.99", "INVALID_FIELD", "TranscriptionService/Transcribe", sized(5, b"\x98\6\0" * (some >> 1))),
        ("token_ids.ids", "INPUT_TOO_LONG", "ClassificationService/Classify", sized(3, sized(1, bytes(15 << 20)))),
        ("inputs", "INPUT_TOO_LONG", "EmbeddingService/Embed", b"\x12\0" * some),
        ("", "MESSAGE_TOO_LARGE", "ScoreService/Score", sized(3, b"\x08\1" * some)),
        ("", "MALFORMED_REQUEST", "ScoreService/Score", b"\x1b\x1c" * some),
    ]


def test_messages_of_millions_of_fields_harm_nobody(server, client):
    """Each is refused by its field and takes little memory beside its bytes. Who asks meanwhile gets an answer."""
    alone = client.translate("we are eating bread").text
    with grpc.insecure_channel(server.target) as channel:
        for field, reason, method, data in full_of_fields():
            begin = start_of_peak(server)
            call = channel.unary_stream(f"/weft.v1.{method}")(data, timeout=60)
            assert alone == client.translate("we are eating bread").text
            assert (method, grpc.StatusCode.INVALID_ARGUMENT, reason) == (method, call.code(), reason_of(call))
            assert not field or [field] == fields_refused(call)
            # gRPC holds the bytes twice while it joins them.
            assert (method, peak_bytes(server) - begin < 64 << 20) == (method, True)


def fields_refused(error):
    """The fields that a status names."""
    return [each.field for each in details_of(error, error_details_pb2.BadRequest).field_violations]


def start_of_peak(server):
    """Forget the most memory that a server had, and return what it has."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    return server.rss_bytes()


def peak_bytes(server):
    """The most memory that a server had since."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_a_violation_is_named_as_the_message_has_it(server):
    """BadRequest's field is the path in the message that was sent: a stream's holds the unary call's request."""
    request = generation_pb2.GenerateRequest(text="def", decoding={"sampling": {"top_p": 1.0000001}})
    said = "decoding.sampling.top_p must be above 0 and at most 1, not 1.0000001"
    with grpc.insecure_channel(server.target) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        unary = stub.Generate.future(request, timeout=10)
        stream = stub.StreamGenerate(generation_pb2.StreamGenerateRequest(request=request), timeout=10)
        for call, field in ((unary, "decoding.sampling.top_p"), (stream, "request.decoding.sampling.top_p")):
            assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
            (violation,) = details_of(call, error_details_pb2.BadRequest).field_violations
            assert (field, said) == (violation.field, violation.description)


def test_a_temperature_of_0_is_refused_on_the_wire(server):
    """There greedy has a field of its own; only the SDK and the command take 0 to mean it."""
    request = generation_pb2.GenerateRequest(text="def", decoding={"sampling": {"temperature": 0}})
    with grpc.insecure_channel(server.target) as channel:
        call = generation_pb2_grpc.GenerationServiceStub(channel).Generate.future(request, timeout=10)
        assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "for 0 ask for greedy" in call.details()


def test_the_sdk_names_a_field_the_same_in_both(client):
    """To who calls a verb of the SDK, a stream's field is the unary call's."""
    stream = client.stream_generate("def", decoding=weft.Decoding(max_new_tokens=100_000))
    with pytest.raises(weft.InvalidRequest) as refused:
        next(stream)
    assert ["decoding.max_new_tokens"] == [each.field for each in refused.value.field_violations]


def reason_of(error):
    """ErrorInfo.reason in a status's details."""
    info = details_of(error, error_details_pb2.ErrorInfo)
    assert "weft" == info.domain
    return info.reason


def details_of(error, kind):
    """The detail of that kind in a status."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    detail = kind()
    assert any(each.Unpack(detail) for each in status.details)
    return detail


def test_a_message_over_the_limit_is_refused_by_the_wire(server):
    """17 MiB in one message: RESOURCE_EXHAUSTED, and the connection serves on."""
    request = classification_pb2.ClassifyRequest(image=common_pb2.Image(data=bytes(17 << 20)))
    with grpc.insecure_channel(server.target) as channel:
        classify = channel.unary_unary(
            "/weft.v1.ClassificationService/Classify",
            request_serializer=classification_pb2.ClassifyRequest.SerializeToString,
            response_deserializer=classification_pb2.ClassifyResponse.FromString,
        )
        with pytest.raises(grpc.RpcError) as refused:
            classify(request, timeout=10)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert classify(classification_pb2.ClassifyRequest(image=common_pb2.Image(data=png())), timeout=10).labels


def test_callers_who_hang_up_on_the_metrics_port_leave_no_trace(server):
    """A scraper that gives up is no event, in whatever format the log is."""
    host, port = server.http.rsplit(":", 1)
    for _ in range(100):
        with socket.create_connection((host, int(port))) as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            caller.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")

    assert 200 == server.get("/livez")[0]
    assert [] == [event for event in server.log if "Traceback" in event["event"]]


def test_neighbours_of_bad_requests_get_their_answers(server, client):
    """While every bad input is thrown at the server, good requests answer as ever."""
    decoding = weft.Decoding(max_new_tokens=60)
    alone = client.generate("def", decoding=decoding).token_ids
    errors, stop = [], threading.Event()

    def throw():
        with weft.Client(server.target) as other:
            while not stop.is_set():
                for *_, call in bad_calls(other):
                    try:
                        call()
                        errors.append("accepted")
                    except weft.InvalidRequest:
                        pass

    thread = threading.Thread(target=throw)
    thread.start()
    try:
        together = [client.generate("def", decoding=decoding).token_ids for _ in range(30)]
    finally:
        stop.set()
        thread.join()

    assert [] == errors
    assert [alone] * 30 == together
    assert 0 == server.metric("weft_requests_total", code="INTERNAL")


def test_no_bug_was_logged(server):
    """After all of the above the server has met no internal error."""
    assert [] == [event for event in server.log if event["event"] == "bug"]
