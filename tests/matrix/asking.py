"""What the cells of the matrix ask, how a call goes, and what it ended with."""

import subprocess
import sys
import threading
from itertools import product
from pathlib import Path

import grpc
from cells import KINDS, TASKS
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from open_inference import infer
from weft_proto.inference.methods import METHODS as TENSOR_METHODS
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS, streaming

ROOT = Path(__file__).parents[2]
# Inputs of each task: of the first request, of the two beside it, of the one behind. Those of a task that batches have
# one padded length, so that they share a batch.
TEXTS = {
    "translate": ("we are eating bread", "the boy sees the house", "she reads a red book", "the old man is here"),
    "score": ("we are eating bread", "the boy sees the house", "she reads a red book", "the old man is here"),
    "generate": ("Return a list of", "Return the name of the", "Raise an error if", "Open a file and"),
    "infer": ("Return a socket object", "Parse the given text", "Open a new window", "Start a new thread"),
    "classify text": ("Return a socket object", "Parse the given text", "Open a new window", "Start a new thread"),
    # Questions, which pictures go with.
    "answer": (
        "how many triangles are there?",
        "is there a blue cross?",
        "is there an orange cross?",
        "what color is the square?",
    ),
    "embed": ("the cat", "the dog", "green tree", "a bird"),
    "tag": ("Ann lives in Paris", "Bob paid ten euros", "Eve went to Rome", "Tom is in Berlin"),
    # Contexts of a question.
    "extract": ("the cat eats", "a dog sees", "the green tree", "they see or not"),
    # [UNKNOWN] is the model's mask.
    "fill mask": ("the [UNKNOWN] eats", "a dog [UNKNOWN]", "[UNKNOWN] the tree", "they [UNKNOWN] not"),
}
# The field of a text where it is another than `text`.
FIELDS = {"extract": "context"}
# The field of a file, and whose examples are sent.
FILES = {
    "caption": ("image", "scenes"),
    "answer": ("image", "scenes-answers"),
    "transcribe": ("audio", "commands"),
    "classify image": ("image", "digits"),
    "match": ("image", "digits"),
}
_METHODS = {
    "translate": "Translate",
    "caption": "Caption",
    "answer": "Answer",
    "transcribe": "Transcribe",
    "generate": "Generate",
    "classify text": "Classify",
    "classify image": "Classify",
    "tag": "Tag",
    "extract": "Extract",
    "fill mask": "FillMask",
    "embed": "Embed",
    "match": "Classify",
    "score": "Score",
    "infer": "ModelInfer",
}


def verb(task, kind):
    """(path of the method, its request, its response)."""
    name = _METHODS[task]
    method = streaming(name) if kind == "stream" else (METHODS | TENSOR_METHODS)[name]
    return method.path, method.request, method.response


def request_of(task, number, kind="unary", *, explains=False, is_bad=False):
    """The request of a task with its input of a number; one that explains, or one that the server refuses."""
    if task == "infer":
        return infer(TASKS[task].model, text=["" if is_bad else TEXTS[task][number]])
    request = verb(task, "unary")[1](model=common_pb2.ModelSelector(name=TASKS[task].model))
    if task in FILES:
        getattr(request, FILES[task][0]).data = file_of(task, number, is_bad=is_bad)
    elif task == "embed":
        request.inputs.add(text="" if is_bad else TEXTS[task][number])
    else:
        setattr(request, FIELDS.get(task, "text"), "" if is_bad else TEXTS[task][number])
    if task == "extract":
        request.question = "the cat"
    if task == "answer":
        request.text = TEXTS[task][number]
    if task == "match":
        request.labels.extend(TEXTS["embed"])
    if task == "score":
        request.target_text = "estamos comiendo pan"
    if explains:
        request.explain.SetInParent()
    if TASKS[task].streams:
        request.decoding.max_new_tokens = 12
    return verb(task, "stream")[1](request=request) if kind == "stream" else request


def file_of(task, number, *, is_bad=False):
    """The picture or the recording of a number, or bytes that are none."""
    found = sorted((ROOT / "export" / "checkpoints" / FILES[task][1] / "examples").iterdir())
    return b"no such file" if is_bad else found[number % len(found)].read_bytes()


class Asked:
    """A call under way. `end` waits for it: (status code, reason, the answer's bytes but for times and ids)."""

    def __init__(self, channel, task, kind, request, timeout=120, *, reads=True):
        path, _, response = verb(task, kind)
        make = channel.unary_stream if kind == "stream" else channel.unary_unary
        method = make(path, type(request).SerializeToString, response.FromString)
        self._kind, self.messages = kind, []
        self.call = method(request, timeout=timeout) if kind == "stream" else method.future(request, timeout=timeout)
        # Whether it takes messages as they come. One that does not is a slow reader.
        self._reads = threading.Event()
        if reads:
            self._reads.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            if self._kind == "unary":
                self.messages.append(self.call.result())
                return
            while self._reads.wait(120):
                self.messages.append(next(self.call))
        except (grpc.RpcError, grpc.FutureCancelledError, StopIteration):
            pass

    def pause(self):
        """Read nothing more after the next message."""
        self._reads.clear()

    def go_on(self):
        """Read."""
        self._reads.set()

    @property
    def is_over(self):
        """Whether it has ended."""
        return not self._thread.is_alive()

    def end(self):
        """See the class."""
        self._thread.join(60)
        assert self.is_over, "a call has no end"
        code = self.call.code().name
        return code, _reason(self.call), self.messages and code == "OK" and plain(self.messages)


def _reason(call):
    for key, value in call.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if any_pb2.Any.Is(detail, info.DESCRIPTOR) and detail.Unpack(info):
                    return info.reason
    return ""


def plain(messages):
    """The final message without what differs from call to call, and the text of the deltas before it."""
    *deltas, final = messages
    deltas = "".join(each.delta.text for each in deltas)
    final = getattr(final, "final", final)
    for message in (final, getattr(final, "completion", final)):
        for name in ("timings", "request_id"):
            if name in message.DESCRIPTOR.fields_by_name:
                message.ClearField(name)
    return deltas, final.SerializeToString(deterministic=True)


def answers_alone(channel):
    """(task, kind, number of the input, whether it explains) -> answer."""
    found = {}
    # So that its labels are there.
    Asked(channel, "match", "unary", request_of("match", 0)).end()
    for task, kind, number, explains in product(TASKS, KINDS, range(4), (False, True)):
        if (kind == "unary" or TASKS[task].streams) and not (explains and "explaining" not in TASKS[task].stages):
            code, _, answer = Asked(channel, task, kind, request_of(task, number, kind, explains=explains)).end()
            assert "OK" == code, (task, number)
            found[task, kind, number, explains] = answer
    return found


class Client:
    """A process of its own that makes one call, to be killed in the middle of it."""

    def __init__(self, target):
        script = Path(__file__).parent / "client_to_kill.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, task, kind, request):
        """Begin the call by gRPC."""
        self._say(f"{verb(task, kind)[0]} {kind} {request.SerializeToString().hex()}")

    def send(self, data):
        """Begin the call by HTTP, with these bytes."""
        self._say(f"HTTP {data.hex()}")

    def _say(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
