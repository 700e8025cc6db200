"""Whatever bytes come over the wire, a real server answers or refuses by a field, and nothing is left of them."""

import io
import wave

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import event, given
from hypothesis import strategies as st
from PIL import Image

from mutations import budget, mutated_bytes, mutated_message
from on_the_wire import inside, places, shortest, sized, times, varint
from open_inference import infer
from process import ServerProcess
from weft_proto.inference import open_inference_pb2
from weft_proto.v1 import (
    answer_pb2,
    caption_pb2,
    classification_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    score_pb2,
    tokenization_pb2,
    transcription_pb2,
    translation_pb2,
)

pytestmark = pytest.mark.e2e
MODELS = (
    "tiny-generate",
    "tiny-translate",
    "tiny-tags",
    "tiny-extract",
    "tiny-masks",
    "tiny-text",
    "tiny-image",
    "tiny-caption",
    "tiny-speech",
    "tiny-git",
    "tiny-embed",
    "tiny-match",
)
# Of the server's memory: it takes 0.4 GB for these models.
MOST_BYTES = 1_500_000_000
IDLE = ("weft_decode_slots_used", "weft_requests_running", "weft_requests_queued", "weft_queued_tokens")
# What a caller may be told. A bug of ours would be INTERNAL or UNKNOWN.
TYPED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def picture():
    """A small picture."""
    file = io.BytesIO()
    Image.new("RGB", (9, 7)).save(file, "PNG")
    return file.getvalue()


def recording():
    """A short recording."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(4000)
        out.writeframes(bytes(range(250)) * 4)
    return file.getvalue()


# What is wrong with a message as a whole.
WHOLE = {"MALFORMED_REQUEST", "MESSAGE_TOO_LARGE"}
DECODING = {
    "max_new_tokens": 3, "min_new_tokens": 1, "num_outputs": 1, "stop": ["a"], "suppressed": {"ids": [3]},
    "banned": [{"text": "cat"}, {"token_ids": {"ids": [5, 6]}}], "bias": [{"token_ids": {"ids": [4]}, "bias": 0.5}],
    "penalties": {"repetition": 1.5, "presence": 0.1, "no_repeat_ngram_size": 2},
    "length_decay": {"start": 1, "factor": 1.5},
}  # fmt: skip
GENERATE = generation_pb2.GenerateRequest(
    model={"name": "tiny-generate"}, text="def f", decoding=DECODING | {"sampling": {"temperature": 0.5, "seed": 3}},
    explain={}, num_top_tokens=2, request_id="r", cache_salt="s",
)  # fmt: skip
SEARCH = generation_pb2.GenerateRequest(
    model={"name": "tiny-generate"}, token_ids={"ids": [5, 6]}, decoding=DECODING | {"beams": {"num_beams": 2}}
)
CHAT = generation_pb2.GenerateRequest(
    model={"name": "tiny-generate"}, messages={"turns": [{"role": "user", "content": "cat"}]},
    decoding={"max_new_tokens": 2, "constraint": {"regex": "[a-z ]+"}},
)  # fmt: skip
TRANSLATE = translation_pb2.TranslateRequest(
    model={"name": "tiny-translate", "version": 1}, text="the big dog", decoding=DECODING, explain={"layer": 0}
)
CAPTION = caption_pb2.CaptionRequest(model={"name": "tiny-caption"}, image={"data": picture()}, decoding=DECODING)
ANSWER = answer_pb2.AnswerRequest(
    model={"name": "tiny-git"}, image={"data": picture()}, text="the cat", decoding=DECODING, explain={"layer": 0}
)
TRANSCRIBE = transcription_pb2.TranscribeRequest(
    model={"name": "tiny-speech"}, audio={"data": recording()}, language="en", to_english=True, decoding=DECODING
)
SCORE = score_pb2.ScoreRequest(
    model={"name": "tiny-translate"}, text="the dog", target_text="el perro", num_top_tokens=1
)
SCORE_SPOKEN = score_pb2.ScoreRequest(
    model={"name": "tiny-speech"}, audio={"data": recording()}, source_language="de", target_text="el perro"
)
# The method, and requests that are answered.
METHODS = {
    "GenerationService/Generate": [GENERATE, SEARCH, CHAT],
    "GenerationService/StreamGenerate": [
        generation_pb2.StreamGenerateRequest(request=each) for each in (GENERATE, SEARCH)
    ],
    "TranslationService/Translate": [TRANSLATE],
    "TranslationService/StreamTranslate": [translation_pb2.StreamTranslateRequest(request=TRANSLATE)],
    "CaptionService/Caption": [CAPTION],
    "CaptionService/StreamCaption": [caption_pb2.StreamCaptionRequest(request=CAPTION)],
    "AnswerService/Answer": [ANSWER],
    "AnswerService/StreamAnswer": [answer_pb2.StreamAnswerRequest(request=ANSWER)],
    "TranscriptionService/Transcribe": [TRANSCRIBE],
    "TranscriptionService/StreamTranscribe": [transcription_pb2.StreamTranscribeRequest(request=TRANSCRIBE)],
    "ClassificationService/Classify": [
        classification_pb2.ClassifyRequest(model={"name": "tiny-text"}, text="the cat", top_k=2, explain={}),
        classification_pb2.ClassifyRequest(model={"name": "tiny-image"}, image={"data": picture()}),
        classification_pb2.ClassifyRequest(
            model={"name": "tiny-match"}, image={"data": picture()}, labels=["cat", "dog"], label_text="the {}"
        ),
    ],
    "ClassificationService/Tag": [classification_pb2.TagRequest(model={"name": "tiny-tags"}, text="the cat")],
    "ClassificationService/Extract": [
        classification_pb2.ExtractRequest(
            model={"name": "tiny-extract"},
            question="the cat",
            context="a big dog eats",
            top_k=3,
            max_answer_tokens=2,
            allow_no_answer=True,
            explain={"layer": 0},
        ),
        classification_pb2.ExtractRequest(
            model={"name": "tiny-extract"}, question="the cat", context="a big dog eats", max_seq_len=8, doc_stride=1
        ),
    ],
    "ClassificationService/FillMask": [
        classification_pb2.FillMaskRequest(
            model={"name": "tiny-masks"},
            text="the [UNKNOWN] eats a [UNKNOWN]",
            top_k=2,
            targets=["cat", "dog"],
            explain={},
        )
    ],
    "ScoreService/Score": [SCORE, SCORE_SPOKEN],
    "TokenizationService/Tokenize": [
        tokenization_pb2.TokenizeRequest(model={"name": "tiny-translate"}, text="the dog", side="SIDE_OUTPUT"),
        tokenization_pb2.TokenizeRequest(model={"name": "tiny-generate"}, messages=CHAT.messages, count_only=True),
    ],
    "TokenizationService/Detokenize": [
        tokenization_pb2.DetokenizeRequest(model={"name": "tiny-tags"}, token_ids=[5, 6, 2], side="SIDE_INPUT")
    ],
    "EmbeddingService/Embed": [
        embedding_pb2.EmbedRequest(
            model={"name": "tiny-embed"}, inputs=[{"text": "the cat"}, {"token_ids": {"ids": [5]}}], dimensions=7
        ),
        embedding_pb2.EmbedRequest(model={"name": "tiny-embed"}, inputs=[{"text": "the cat"}], explain={"layer": 1}),
    ],
    "ModelService/GetModel": [model_pb2.GetModelRequest(model={"name": "tiny-text"})],
    "ModelService/ListModels": [model_pb2.ListModelsRequest()],
}
# By tensors, whose bytes are in the one place or in the other.
INFER = [
    infer("tiny-text", text=["the cat", "a big dog"], parameters={"top_k": 2}),
    infer("tiny-text", raw=False, text=["the cat"]),
    infer("tiny-tags", text=["the cat", "the dog"]),
    infer("tiny-image", image=[picture()]),
    infer("tiny-embed", text=["the cat", "the dog"], parameters={"dimensions": 7}),
]
PATHS = {f"/weft.v1.{method}": seeds for method, seeds in METHODS.items()}
PATHS |= {
    "/inference.GRPCInferenceService/ModelInfer": INFER,
    "/inference.GRPCInferenceService/ModelMetadata": [
        open_inference_pb2.ModelMetadataRequest(name="tiny-text", version="1")
    ],
    "/inference.GRPCInferenceService/ModelReady": [open_inference_pb2.ModelReadyRequest(name="tiny-embed")],
}


@pytest.fixture(scope="module")
def server(tiny_repository, tmp_path_factory):
    """A real server over models of each task."""
    repository = tmp_path_factory.mktemp("models")
    for name in MODELS:
        (repository / name).symlink_to(tiny_repository / name)
    with ServerProcess(repository, slots=8, lanes=1, max_request_bytes=1 << 20) as server:
        server.wait_for("ready")
        yield server
        server.wait_until(lambda: not any(map(server.metric, IDLE)), what="idleness")
        assert server.rss_bytes() < MOST_BYTES
        assert [] == [line for line in server.log if line.get("level") in ("error", "critical")]


@pytest.fixture(scope="module")
def channel(server):
    """A connection to it."""
    with grpc.insecure_channel(server.target) as channel:
        yield channel


def ask(channel, path, body):
    """How a call with these bytes ends: its code, reason, and the fields that are refused."""
    call = channel.unary_stream(path)(body, timeout=60)
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        for detail in status_pb2.Status.FromString(details).details:
            for kind in (info, bad):
                detail.Unpack(kind)
        return error.code(), info.reason, [violation.field for violation in bad.field_violations]
    return grpc.StatusCode.OK, "", []


def check(code, reason, fields):
    """An answer, or a refusal that says why, and of a wrong request which field."""
    event(code.name)
    if code != grpc.StatusCode.OK:
        assert code in TYPED, (code, reason)
        assert reason
        assert fields or code != grpc.StatusCode.INVALID_ARGUMENT or reason in WHOLE


def test_the_seeds_are_answered(channel):
    """So what is changed in them is read to the end."""
    for path, seeds in PATHS.items():
        for seed in seeds:
            assert grpc.StatusCode.OK == ask(channel, path, seed.SerializeToString())[0], seed


@budget(80)
@given(data=st.data())
def test_any_message(channel, data):
    """Fields of requests, changed."""
    path = data.draw(st.sampled_from(sorted(PATHS)))
    message = data.draw(mutated_message(PATHS[path]))
    check(*ask(channel, path, message.SerializeToString()))


@budget(60)
@given(data=st.data())
def test_any_bytes(channel, data):
    """Bytes of requests, changed."""
    path = data.draw(st.sampled_from(sorted(PATHS)))
    seeds = [seed.SerializeToString() for seed in PATHS[path]]
    check(*ask(channel, path, data.draw(st.one_of(mutated_bytes(seeds), st.binary(max_size=100)))))


@budget(60)
@given(data=st.data())
def test_any_number_of_fields(channel, data):
    """Requests with one of their fields behind them, as often as no request has it: one inside others, or unknown."""
    path = data.draw(st.sampled_from(sorted(PATHS)))
    seed = PATHS[path][data.draw(st.integers(0, len(PATHS[path]) - 1))]
    known = list(places(seed.DESCRIPTOR))
    if not known:
        return
    around, field = known[data.draw(st.integers(0, len(known) - 1))]
    count = data.draw(st.sampled_from([1, 4, 5, 64, 65, 1024, 1025, 20_000, 400_000]))
    kinds = {
        "known": shortest(field),
        "as a message": sized(field.number, b"\x0a\0"),
        "an unknown number": varint(999 << 3) + b"\0",
        "an unknown text": sized(999, b"a"),
        "a group": varint(999 << 3 | 3) + varint(999 << 3 | 4),
    }
    written = kinds[data.draw(st.sampled_from(sorted(kinds)))]
    packed = data.draw(st.booleans())
    body = times(field, min(count, 100_000)) if packed else written * min(count, 900_000 // len(written))
    check(*ask(channel, path, seed.SerializeToString() + inside(around, body)))
