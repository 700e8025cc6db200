"""What is refused leaves nothing: the server's memory after thousands of refusals of large requests."""

import io
from pathlib import Path

import grpc
import numpy as np
import pytest
from PIL import Image

import weft
from process import ServerProcess
from weft_proto.v1 import caption_pb2, common_pb2, generation_pb2

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MEBIBYTE = 1 << 20
# One request of 15 MiB of token ids is 60 more once it is read, and a picture of 16 megapixels 64 once it is decoded.
# gRPC and the allocator keep some of the largest for the next: this is a handful of them, not hundreds.
MAX_GROWTH_BYTES = 640 * MEBIBYTE


def _peak_bytes(server):
    """The most that was ever resident."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _cut_pictures():
    """A PNG and a JPEG of 4096 x 4096 pixels, each without its end."""
    image = Image.fromarray(np.tile(np.arange(4096) // 16, (4096, 1)).astype(np.uint8)).convert("RGB")
    for kind in ("PNG", "JPEG"):
        file = io.BytesIO()
        image.save(file, kind)
        yield file.getvalue()[:-2000]


def _starts(channel, service, verb, request, stream_request):
    """What starts a unary call of a request, and what a streaming one; the bytes are made once."""
    raw = {"request_serializer": lambda data: data, "response_deserializer": lambda data: data}
    data, wrapped = request.SerializeToString(), stream_request(request=request).SerializeToString()
    unary = channel.unary_unary(f"/weft.v1.{service}/{verb}", **raw)
    stream = channel.unary_stream(f"/weft.v1.{service}/Stream{verb}", **raw)
    return lambda **options: unary.future(data, **options), lambda **options: stream(wrapped, **options)


def test_memory_does_not_grow_with_refusals(demo_repository):
    """Bad pictures, ids by the million, late and cancelled calls, unary and streams: the peak is a few of them."""
    invalid, late = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED
    with ServerProcess(demo_repository) as server:
        server.wait_for("ready")
        before = server.rss_bytes()
        with grpc.insecure_channel(server.target) as channel:
            for picture in _cut_pictures():
                request = caption_pb2.CaptionRequest(image=common_pb2.Image(data=picture))
                for start in _starts(channel, "CaptionService", "Caption", request, caption_pb2.StreamCaptionRequest):
                    assert [invalid] * 8 == [start().code() for _ in range(8)]
            request = generation_pb2.GenerateRequest(token_ids=common_pb2.TokenIds(ids=[1] * (15 * MEBIBYTE)))
            wrapper = generation_pb2.StreamGenerateRequest
            for start in _starts(channel, "GenerationService", "Generate", request, wrapper):
                assert [invalid] * 15 == [start().code() for _ in range(15)]
                # A message that is too large for its method is refused within milliseconds.
                assert {late, invalid} >= {start(timeout=0.02).code() for _ in range(10)}
                for _ in range(10):
                    start().cancel()
            request = generation_pb2.GenerateRequest(text="x" * MEBIBYTE)
            for start in _starts(channel, "GenerationService", "Generate", request, wrapper):
                assert [invalid] * 700 == [start().code() for _ in range(700)]
        grown = _peak_bytes(server) - before
        with weft.Client(server.target) as client:
            assert client.translate("we are eating bread").text
    assert grown < MAX_GROWTH_BYTES, f"{grown // MEBIBYTE} MiB"
