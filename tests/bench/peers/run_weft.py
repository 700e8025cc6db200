"""Weft, served: a server process, and in this one callers that know no more of it than its address."""

import asyncio
import sys
import time
from pathlib import Path

# A script finds what the tests share above it.
sys.path.append(str(Path(__file__).parents[2]))

import grpc.aio
from adapter import Done, System, serve
from recordings import words_of

import weft
from process import ServerProcess
from weft_proto.v1 import (
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    transcription_pb2,
    translation_pb2,
)

_METHODS = {
    "translation": "/weft.v1.TranslationService/Translate",
    "llama": "/weft.v1.GenerationService/Generate",
    "bert": "/weft.v1.ClassificationService/Classify",
    "vit": "/weft.v1.ClassificationService/Classify",
    "whisper": "/weft.v1.TranscriptionService/Transcribe",
    "minilm": "/weft.v1.EmbeddingService/Embed",
}
# So many rows in a step cost little more than the reading of the weights, which each lane does by itself.
FEW = 8


class Weft(System):
    """A closed loop: `in_flight` callers, each with one unary call at a time; bytes in, bytes out."""

    server = None

    def version(self):
        return f"Weft {weft.__version__}"

    def settings(self, workload, precision, in_flight, num_cpus):
        if in_flight == 1:
            return [{"lanes": 1, "threads": threads} for threads in (num_cpus, 1)]
        many = {"lanes": num_cpus, "threads": 1}
        if workload.hears:
            return [many, {"lanes": 1, "threads": num_cpus}]
        if workload.writes:
            # With a few callers always waiting, more of their inputs can be read together.
            rows = in_flight * workload.num_beams
            slots = [{"slots": number} for number in (rows, rows * 7 // 8, rows // 2)]
            together = {"lanes": 1, "threads": num_cpus} | slots[0]
            return [together, many | slots[0]] if in_flight <= FEW else [*(many | each for each in slots), together]
        if workload.num_texts:
            # By default as many texts may wait as one such call has.
            many |= {"max_queued_requests": in_flight * workload.num_texts, "max_queued_tokens": 1_000_000}
            return [many | {"max_batch": batch} for batch in (16, 8, 32)]
        batches = sorted({max(1, in_flight // 4), max(1, in_flight // 2), in_flight})
        return [many | {"max_batch": batch} for batch in batches] + [{"lanes": 1, "threads": num_cpus}]

    def prepare(self, folder, precision):
        """The harness has made the bundles: only it may import the exporter."""

    def load(self, folder, workload, precision, setting):
        self.shape, self.folder, self.num_beams = workload.shape, folder, workload.num_beams
        self.server = ServerProcess(folder / f"weft-{precision}", **setting)
        self.server.__enter__()
        self.server.wait_for("ready")

    def convert(self, requests):
        return [self._message(request).SerializeToString() for request in requests]

    def _message(self, request):
        if "image" in request:
            image = common_pb2.Image(data=(self.folder / "images" / request["image"]).read_bytes())
            return classification_pb2.ClassifyRequest(image=image)
        if "sound" in request:
            audio = common_pb2.Audio(data=(self.folder / "sounds" / request["sound"]).read_bytes())
            return transcription_pb2.TranscribeRequest(audio=audio, language="en", timestamps=False)
        if "texts" in request:
            return embedding_pb2.EmbedRequest(inputs=[{"text": text} for text in request["texts"]])
        ids = common_pb2.TokenIds(ids=request["ids"])
        if "num_new" not in request:
            return classification_pb2.ClassifyRequest(token_ids=ids)
        decoding = common_pb2.Decoding(max_new_tokens=request["num_new"], min_new_tokens=request["num_new"])
        if self.num_beams > 1:
            decoding.beams.num_beams = self.num_beams
            decoding.beams.length_penalty = 1
        if self.shape == "translation":
            return translation_pb2.TranslateRequest(token_ids=ids, decoding=decoding)
        return generation_pb2.GenerateRequest(token_ids=ids, decoding=decoding)

    def run(self, messages, in_flight):
        return asyncio.run(self._closed_loop(messages, in_flight))

    async def _closed_loop(self, messages, in_flight):
        answers, waiting = [None] * len(messages), iter(enumerate(messages))
        async with grpc.aio.insecure_channel(self.server.target) as channel:
            call = channel.unary_unary(_METHODS[self.shape])

            async def caller():
                for index, message in waiting:
                    started = time.perf_counter()
                    answer = await call(message)
                    answers[index] = (time.perf_counter() - started, answer)

            await asyncio.gather(*(caller() for _ in range(in_flight)))
        return answers

    def answers(self, ran):
        return [Done(seconds, self._output(answer)) for seconds, answer in ran]

    def _output(self, answer):
        if self.shape == "translation":
            return list(translation_pb2.TranslateResponse.FromString(answer).completion.token_ids)
        if self.shape == "llama":
            return list(generation_pb2.GenerateResponse.FromString(answer).completion.token_ids)
        if self.shape == "whisper":
            return words_of(transcription_pb2.TranscribeResponse.FromString(answer).completion.text)
        if self.shape == "minilm":
            return [list(each.values) for each in embedding_pb2.EmbedResponse.FromString(answer).embeddings]
        # The most probable labels only: the others are None.
        labels = classification_pb2.ClassifyResponse.FromString(answer).labels
        found = {label.index: label.score for label in labels}
        return [found.get(index) for index in range(max(found) + 1)]

    def root(self):
        return self.server.process.pid

    def close(self):
        if self.server is not None:
            self.server.__exit__()


if __name__ == "__main__":
    serve(Weft())
