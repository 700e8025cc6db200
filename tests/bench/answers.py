"""What every model answers to a fixed set of requests, written to a file: equal files mean equal servers.

    python tests/bench/answers.py build/answers.txt

Run it at two commits over the same bundles, and compare the files. Each answer is there whole but for its timings: its
text, its token ids, every bit of its scores and alignments, or its status and details. Each request is asked three
times: alone, among all the others at once, and as a stream. A model that answers differently ends the run.
"""

import argparse
import asyncio
import base64
import io
import itertools
import sys
import tempfile
import wave
from pathlib import Path

# Run as a script: what the tests share lies above.
sys.path.insert(0, str(Path(__file__).parents[1]))

import grpc
import numpy as np
from PIL import Image

from process import ServerProcess
from weft_proto.v1 import (
    answer_pb2,
    answer_pb2_grpc,
    caption_pb2,
    caption_pb2_grpc,
    classification_pb2,
    classification_pb2_grpc,
    common_pb2,
    embedding_pb2,
    embedding_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    transcription_pb2,
    transcription_pb2_grpc,
    translation_pb2,
    translation_pb2_grpc,
)

ROOT = Path(__file__).parents[2]
CONCURRENCY = 48
TEXTS = (
    "we are eating bread",
    "the old woman reads a red book",
    "Return a list of",
    "Return a socket connected to the given host and port.",
    "cat:tac dog:god sun:",
    "translate English to Spanish: we are eating bread",
    "summarise: the boy sees the house and the girl sees the garden",
    "topic: import the module and call the function",
    "Zoë Krüger paid €40 for 3 kg of rice in Łódź on 12 May 2021.",
    "e\u0301a 🎉 ﬁn",
    "a",
    " ",
)
QUESTIONS = (
    "what is left of the purple triangle?",
    "how many stars are there?",
    "is there a blue cross?",
    "a",
    " ",
)
DECODINGS = (
    common_pb2.Decoding(),
    common_pb2.Decoding(max_new_tokens=9, min_new_tokens=9),
    common_pb2.Decoding(max_new_tokens=24, stop=["e", " a"]),
    common_pb2.Decoding(max_new_tokens=20, sampling=common_pb2.Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=7)),
    common_pb2.Decoding(max_new_tokens=16, min_new_tokens=4, sampling=common_pb2.Sampling(top_k=0, seed=11)),
    common_pb2.Decoding(max_new_tokens=100_000),
    common_pb2.Decoding(sampling=common_pb2.Sampling(temperature=-1.0)),
)


class Verb:
    """How a task is asked: its message, its stub's calls, and the fields of its input."""

    def __init__(self, channel, stub, name, request, stream=None):
        self.unary = getattr(stub(channel), name)
        self.stream = getattr(stub(channel), f"Stream{name}") if stream else None
        self.request, self.stream_request = request, stream


def verbs(channel):
    """Task -> Verb."""
    classification = classification_pb2_grpc.ClassificationServiceStub
    classify = Verb(channel, classification, "Classify", classification_pb2.ClassifyRequest)
    embed = Verb(channel, embedding_pb2_grpc.EmbeddingServiceStub, "Embed", embedding_pb2.EmbedRequest)
    return {
        common_pb2.TASK_TRANSLATE: Verb(
            channel,
            translation_pb2_grpc.TranslationServiceStub,
            "Translate",
            translation_pb2.TranslateRequest,
            translation_pb2.StreamTranslateRequest,
        ),
        common_pb2.TASK_CAPTION: Verb(
            channel,
            caption_pb2_grpc.CaptionServiceStub,
            "Caption",
            caption_pb2.CaptionRequest,
            caption_pb2.StreamCaptionRequest,
        ),
        common_pb2.TASK_ANSWER: Verb(
            channel,
            answer_pb2_grpc.AnswerServiceStub,
            "Answer",
            answer_pb2.AnswerRequest,
            answer_pb2.StreamAnswerRequest,
        ),
        common_pb2.TASK_TRANSCRIBE: Verb(
            channel,
            transcription_pb2_grpc.TranscriptionServiceStub,
            "Transcribe",
            transcription_pb2.TranscribeRequest,
            transcription_pb2.StreamTranscribeRequest,
        ),
        common_pb2.TASK_GENERATE: Verb(
            channel,
            generation_pb2_grpc.GenerationServiceStub,
            "Generate",
            generation_pb2.GenerateRequest,
            generation_pb2.StreamGenerateRequest,
        ),
        common_pb2.TASK_CLASSIFY_TEXT: classify,
        common_pb2.TASK_CLASSIFY_IMAGE: classify,
        common_pb2.TASK_MATCH: classify,
        common_pb2.TASK_TAG: Verb(channel, classification, "Tag", classification_pb2.TagRequest),
        common_pb2.TASK_EXTRACT: Verb(channel, classification, "Extract", classification_pb2.ExtractRequest),
        common_pb2.TASK_FILL_MASK: Verb(channel, classification, "FillMask", classification_pb2.FillMaskRequest),
        common_pb2.TASK_EMBED_TEXT: embed,
        common_pb2.TASK_EMBED_IMAGE: embed,
    }


def pictures():
    """Encoded pictures: the examples of the checkpoints, noise of several shapes, and what is none."""
    found = sorted((ROOT / "export" / "checkpoints").glob("*/golden.png"))
    found += sorted((ROOT / "export" / "checkpoints").glob("*/examples/*.png"))[::7]
    yield from (path.read_bytes() for path in found)
    generator = np.random.default_rng(5)
    for shape, form in itertools.product([(9, 31, 3), (64, 64, 3), (40, 25)], ("PNG", "JPEG")):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, shape, np.uint8)).save(file, form)
        yield file.getvalue()
    yield b"no picture"


def recordings():
    """The examples of the checkpoints, silence, and what is none."""
    found = sorted((ROOT / "export" / "checkpoints").glob("*/golden.wav"))
    found += sorted((ROOT / "export" / "checkpoints").glob("*/examples/*.wav"))
    yield from (path.read_bytes() for path in found)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 8000, 0, "NONE", ""))
        out.writeframes(bytes(8000))
    yield file.getvalue()
    yield b"no recording"


def inputs_of(model):
    """The inputs that a model is asked about, as keywords of its request."""
    of_pictures = {
        common_pb2.TASK_CAPTION: {},
        common_pb2.TASK_CLASSIFY_IMAGE: {},
        common_pb2.TASK_EMBED_IMAGE: {},
        common_pb2.TASK_MATCH: {"labels": QUESTIONS[:3]},
        common_pb2.TASK_ANSWER: {"text": QUESTIONS[0]},
    }
    if model.task in of_pictures:
        return [{"image": common_pb2.Image(data=data)} | of_pictures[model.task] for data in pictures()]
    if model.task == common_pb2.TASK_TRANSCRIBE:
        return [{"audio": common_pb2.Audio(data=data)} for data in recordings()]
    if model.task == common_pb2.TASK_EXTRACT:
        return [{"question": question, "context": text} for question in QUESTIONS for text in TEXTS]
    if model.task == common_pb2.TASK_FILL_MASK:
        return [{"text": text.replace("a", model.mask_token, 1)} for text in TEXTS]
    return texts_of(model)


def texts_of(model):
    """Texts, and token ids up to one too many."""
    generator = np.random.default_rng(3)
    longest = model.limits.max_prompt_tokens or model.limits.max_source_tokens
    lengths = sorted({1, 2, 3, 7, 8, 9, 17, 31, 48, 64, 65, longest // 2, longest, longest + 1})
    ids = [generator.integers(0, model.vocab_size, length).tolist() for length in lengths if length]
    return [{"text": text} for text in TEXTS] + [{"token_ids": common_pb2.TokenIds(ids=some)} for some in ids]


def explains_of(model):
    """The alignments that are asked of a model: none, its default, one of a layer, of a head, and of none there is."""
    asked = [None, common_pb2.Explain()]
    layer = len(model.attention_heads) - 1
    if layer >= 0:
        asked += [common_pb2.Explain(layer=layer), common_pb2.Explain(layer=0, head=model.attention_heads[0] - 1)]
    return [*asked, common_pb2.Explain(layer=99)]


def requests_of(model, verb):
    """All requests of one model: the first input with every option, each other one with two that are no mistakes."""
    options = [{}]
    fields = verb.request.DESCRIPTOR.fields_by_name
    if "decoding" in fields:
        options = [{"decoding": decoding, "return_scores": bool(at % 2)} for at, decoding in enumerate(DECODINGS)]
    elif "top_k" in fields:
        options = [{}, {"top_k": 1}, {"top_k": 1000}, {"top_k": 0}]
    explains = explains_of(model)
    selector = common_pb2.ModelSelector(name=model.name, version=model.version)
    every = list(itertools.product(options, explains))
    sound = list(itertools.product(options[:-1] or options, explains[:-1]))  # the last of each list is a mistake
    inputs = inputs_of(model)
    if "inputs" in fields:
        inputs = [{"inputs": [one]} for one in inputs]
    for at, given in enumerate(inputs):
        for option, explain in every if at == 0 else [sound[2 * at % len(sound)], sound[(2 * at + 1) % len(sound)]]:
            yield verb.request(model=selector, request_id="same", explain=explain, **given, **option)


def without_timings(answer):
    """The answer, without what no two runs have alike."""
    for message in (answer, getattr(answer, "completion", None)):
        if message is not None and "timings" in message.DESCRIPTOR.fields_by_name:
            message.ClearField("timings")
    if "usage" in answer.DESCRIPTOR.fields_by_name:
        answer.usage.ClearField("cached_tokens")  # a second answer finds more of them
    return base64.b64encode(answer.SerializeToString(deterministic=True)).decode()


def refusal(error):
    """A status and its details."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    return f"{error.code().name} {error.details()} {base64.b64encode(details).decode()}"


async def ask(verb, request):
    """One answer or refusal, as a line."""
    try:
        return without_timings(await verb.unary(request, timeout=300))
    except grpc.aio.AioRpcError as error:
        return refusal(error)


async def ask_stream(verb, request):
    """The last message of a stream as `ask` gives it; its pieces must make the same text."""
    pieces = []
    try:
        async for event in verb.stream(verb.stream_request(request=request), timeout=300):
            if event.HasField("delta"):
                pieces.append(event.delta.text)
        assert event.final.completion.text == "".join(pieces)
        return without_timings(event.final)
    except grpc.aio.AioRpcError as error:
        return f"stream {refusal(error)}"


async def answers(target):
    """A line for each request."""
    gate = asyncio.Semaphore(CONCURRENCY)

    async def gated(ask_, verb, request):
        async with gate:
            return await ask_(verb, request)

    async with grpc.aio.insecure_channel(target) as channel:
        models = (await model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest())).models
        by_task = verbs(channel)
        asked = [
            (model, by_task[model.task], request)
            for model in models
            for request in requests_of(model, by_task[model.task])
        ]
        lines = [f"{base64.b64encode(model.SerializeToString(deterministic=True)).decode()}" for model in models]
        together = await asyncio.gather(*(gated(ask, verb, request) for _, verb, request in asked))
        streams = await asyncio.gather(*(gated(ask_stream, verb, request) for _, verb, request in asked if verb.stream))
        alone = [await ask(verb, request) for _, verb, request in asked]
        streamed = iter(streams)
        for (model, verb, _), one, other in zip(asked, alone, together, strict=True):
            assert one == other, f"{model.name} answers differently in a batch"
            lines.append(f"{model.name} {one}")
            if verb.stream:
                last = next(streamed)
                assert last == one or last.startswith("stream "), f"{model.name} answers differently as a stream"
                if last.startswith("stream "):
                    lines.append(f"{model.name} {last}")
    return lines


def main():
    """Serve the repositories, ask, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("repositories", type=Path, nargs="*", default=[ROOT / "build/models", ROOT / "build/families"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for repository in arguments.repositories:
            for model in sorted(repository.resolve().iterdir()):
                (Path(folder) / model.name).symlink_to(model)
        with ServerProcess(folder, max_queued_requests=1000, max_queued_tokens=1_000_000) as server:
            server.wait_for("ready", timeout=300)
            lines = asyncio.run(answers(server.target))
            lines += sorted({name for name, _ in server.metrics()})
    arguments.file.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines; {sum(' ' in line for line in lines)} answers")


if __name__ == "__main__":
    main()
