"""The table of the matrix: every combination of task, kind of call, fault, stage and port is a cell, or has a reason.

A stage is held open, so each cell happens in that stage and in no other: by a failpoint, or on the wire by a caller
that sends its message but for the last byte, or that reads no answer. Its fault befalls one request, the first. Two
requests are beside it in the same batch, and one more waits behind them: by gRPC, whatever the port of the first.
"""

from itertools import product
from typing import NamedTuple

KINDS = ("unary", "stream")
# How the first request is asked: by gRPC, or by HTTP as the Connect protocol or OpenAI's API has it.
PORTS = ("gRPC", "Connect", "OpenAI")
# A message on its way in, and an answer on its way out.
ON_THE_WAY = ("receiving", "sending")
STAGES = ("receiving", "queued", "encoding", "prefill", "decoding", "explaining", "sending")
FAULTS = ("ok", "cancel", "deadline", "bad input", "error", "drain", "slow reader", "client killed")


class Task(NamedTuple):
    """A task: its model, and the failpoint at which each of its stages is held."""

    model: str
    stages: dict[str, str]
    streams: bool = False


def _of(model, step="step", *, streams=False, **runs):
    return Task(model, {stage: f"{model}.{point}" for stage, point in {"queued": step, **runs}.items()}, streams)


TASKS = {
    "translate": _of("en-es", streams=True, encoding="encoder", decoding="decode", explaining="explain"),
    "caption": _of("scenes", streams=True, encoding="encoder", decoding="decode", explaining="explain"),
    "answer": _of("scenes-answers", streams=True, encoding="encoder", decoding="decode", explaining="explain"),
    "transcribe": _of("commands", streams=True, encoding="encoder", decoding="decode", explaining="explain"),
    "generate": _of("pydocs", streams=True, prefill="prefill", decoding="decode", explaining="explain"),
    "classify text": _of("topics", encoding="classifier", explaining="explain"),
    "classify image": _of("digits", encoding="classifier", explaining="explain"),
    "tag": _of("tags", encoding="tagger", explaining="explain"),
    "extract": _of("tiny-extract", encoding="tagger", explaining="explain"),
    "fill mask": _of("tiny-masks", encoding="masked_lm", explaining="explain"),
    "embed": _of("tiny-embed", encoding="embedder", explaining="explain"),
    # Its labels have been there before, so a picture is all that runs.
    "match": _of("tiny-match", encoding="image_embedder", explaining="explain"),
    "score": _of("en-es", "score_step", encoding="score"),
    # By tensors, as the Open Inference Protocol has it.
    "infer": _of("topics", encoding="classifier"),
}


class Cell(NamedTuple):
    """One combination."""

    task: str
    kind: str
    fault: str
    stage: str
    port: str = "gRPC"

    @property
    def id(self):
        """Its name in pytest."""
        return "-".join(self).replace(" ", "_")

    @property
    def point(self):
        """The failpoint that holds its stage."""
        return TASKS[self.task].stages[self.stage]

    @property
    def run(self):
        """The failpoint of the run that is to fail. Who is queued waits for the next stage's."""
        _, (_, after), *_ = stages = TASKS[self.task].stages.items()
        return after if self.stage == "queued" else dict(stages)[self.stage]

    @property
    def step(self):
        """The failpoint that holds its requests in the queue."""
        return TASKS[self.task].stages["queued"]


# What OpenAI's API has a route for.
WITH_ROUTE = {"translate", "caption", "answer", "transcribe", "generate", "embed"}
_ONE_RUN = "one run reads the input and gives the answer: it is the stage `encoding`"
_NO_STAGE = {"explaining": "neither scores nor tensors are explained", "encoding": "a prompt is read by prefill"}


_NOT_ON_THE_WAY = {
    ("error", "receiving"): "no run has anything to do with it yet",
    ("error", "sending"): "its runs are over",
    ("bad input", "sending"): "its input has been read",
    ("slow reader", "receiving"): "nothing has been written yet that could be read slowly",
    ("slow reader", "sending"): "that is the stage itself: see `ok`",
}
_NOT_BY_HTTP = {
    "infer": "tensors are asked at gRPC's port",
    "sending": "the system takes so small an answer at once: see tests/server/test_both_ports.py",
}


def why_not(cell):
    """Why a cell cannot exist, or nothing if it does."""
    task = TASKS[cell.task]
    if cell.kind == "stream" and not task.streams:
        return "the task has no streaming call"
    if cell.stage in ON_THE_WAY:
        return _NOT_ON_THE_WAY.get((cell.fault, cell.stage)) or _why_not_by(cell)
    if cell.stage not in task.stages:
        return _NO_STAGE.get(cell.stage) or ("a source is read by an encoder" if task.streams else _ONE_RUN)
    if cell.fault == "slow reader" and cell.kind == "unary":
        return "there is one message, written when all is over"
    if cell.fault == "slow reader" and cell.stage not in {"decoding", "explaining"}:
        return "nothing has been written yet that could be read slowly"
    return _why_not_by(cell)


def _why_not_by(cell):
    """The same for its port."""
    if cell.port == "gRPC":
        return ""
    why = _NOT_BY_HTTP.get(cell.task) or _NOT_BY_HTTP.get(cell.stage, "")
    if why or cell.port == "Connect":
        return why
    if cell.task not in WITH_ROUTE:
        return "OpenAI's API has no route for the task"
    if cell.stage == "explaining" and cell.task in {"embed", "transcribe"}:
        return "OpenAI's API has no field that asks for it"
    return ""


ALL = [Cell(*names) for names in product(TASKS, KINDS, FAULTS, STAGES, PORTS)]
CELLS = [cell for cell in ALL if not why_not(cell)]


def expected(cell):
    """The status of the first request, of each of the two beside it, and of the one behind them.

    An error in a run of a lane is the error of all whom the lane holds:

    1. `queued`: not that of the first, which waits behind the run. The lane holds the two beside it.
    2. `explaining`: the explainer is no lane. The first.
    3. Otherwise: those of the batch. Of short prompts, it is those that are read in one run.
    """
    ok, failed = "OK", "INTERNAL"
    if cell.fault == "error":
        return {
            "queued": (ok, failed, failed, ok),
            "explaining": (failed, ok, ok, ok),
        }.get(cell.stage, (failed, failed, failed, ok))
    first = {
        "cancel": "CANCELLED",
        "client killed": "CANCELLED",
        "deadline": "DEADLINE_EXCEEDED",
        "bad input": "INVALID_ARGUMENT",
    }
    if (cell.fault, cell.stage) == ("drain", "receiving"):
        return ("UNAVAILABLE", ok, ok, ok)
    if cell.stage == "sending" and cell.kind == "unary" and first.get(cell.fault) == "CANCELLED":
        # It was answered. Nobody tells the server that the answer did not arrive.
        return (ok, ok, ok, ok)
    return (first.get(cell.fault, ok), ok, ok, ok)


def few(cells):
    """What runs each night: each fault in each stage once by each port, with the tasks and the kinds in turn."""
    chosen, tasks = [], list(TASKS)
    for port in PORTS:
        for number, (fault, stage) in enumerate(product(FAULTS, STAGES)):
            fits = [cell for cell in cells if cell[2:] == (fault, stage, port)]
            fits.sort(key=lambda cell, number=number: (tasks.index(cell.task) - number) % len(tasks))
            chosen += fits[number % 2 : number % 2 + 1] or fits[:1]
    return chosen


def fewest(cells):
    """What CI runs of those: by gRPC a third, each fault and each stage among them several times; by HTTP each once."""
    chosen = [each for each in cells if each.port == "gRPC" and _turn(each) % 3 == 1]
    by_http = [each for each in cells if each.port != "gRPC"]
    left = {name for cell in by_http for name in cell[2:]}
    while left:
        chosen.append(max(by_http, key=lambda cell: len(left.intersection(cell[2:]))))
        left.difference_update(chosen[-1][2:])
    return chosen


def _turn(cell):
    return FAULTS.index(cell.fault) + STAGES.index(cell.stage)
