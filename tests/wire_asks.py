"""Requests that the tests of the wire send."""

from pathlib import Path

from weft_proto.v1 import classification_pb2, generation_pb2

CLASSIFY = "/weft.v1.ClassificationService/Classify"
GENERATE = "/weft.v1.GenerationService/Generate"
STREAM_GENERATE = "/weft.v1.GenerationService/StreamGenerate"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
MEBIBYTE = 1 << 20
TOKEN = "token-of-somebody-who-is-known"
OK, CANCELLED, INVALID, LATE, EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE = 0, 1, 3, 4, 8, 12, 14
DIGIT = Path(__file__).parents[1] / "export/checkpoints/digits/examples/7.png"


def picture():
    """A request that is answered in a millisecond."""
    request = classification_pb2.ClassifyRequest(image={"data": DIGIT.read_bytes()})
    request.model.name = "digits"
    return request.SerializeToString()


def large_answer(num_outputs=8):
    """A request of 200 bytes whose answer has more than 100,000."""
    request = generation_pb2.GenerateRequest(text="def f(x): return the " * 6, num_top_tokens=20, return_scores=True)
    request.model.name = "pydocs"
    decoding = request.decoding
    decoding.max_new_tokens = decoding.min_new_tokens = 100
    decoding.num_outputs = num_outputs
    decoding.sampling.temperature, decoding.sampling.seed = 2.0, 1
    return request.SerializeToString()


def long_stream():
    """A request whose stream has more bytes than its caller reads."""
    request = generation_pb2.StreamGenerateRequest()
    request.request.ParseFromString(large_answer())
    return request.SerializeToString()


def at_rest(server):
    """Whether nobody holds anything of a server."""
    held = ("weft_calls_open", "weft_messages_receiving", "weft_held_bytes", "weft_answers_sending")
    metrics = server.metrics()
    return not any(metrics[name, frozenset()] for name in (*held, "weft_answers_sending_bytes"))
