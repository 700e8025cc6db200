"""A server on a virtual clock: the scheduler of the real one, and lanes whose steps take as long as was measured."""

import math
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from weft_server.engine.lane import Intake
from weft_server.engine.scheduler import Scheduler
from weft_server.errors import Overloaded
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids


class Costs(NamedTuple):
    """Seconds: a token of a source or prompt, a decode step with no row, and what each row adds."""

    read_token_s: float
    step_s: float
    row_s: float

    def step(self, num_rows):
        """One decode step."""
        return self.step_s + self.row_s * num_rows


@dataclass(slots=True, eq=False)
class Request:
    """One request, and when what befell it. NaN: not yet."""

    came: float
    num_input: int
    num_output: int
    first: float = math.nan
    ended: float = math.nan
    times_asked: int = 0
    is_refused: bool = False


@dataclass(slots=True)
class _Row:
    request: Request
    sequence: Sequence
    left: int


@dataclass(slots=True)
class _Lane:
    rows: list[_Row] = field(default_factory=list)
    # When its present step began, or will.
    at: float = 0.0
    # An older turn that is still on the clock means nothing.
    turn: int = 0


@cache
def _source(num_tokens):
    return Ids(np.zeros(num_tokens, np.int64))


class Replica:
    """`call_at(time, function, argument)` is the clock's. `ended(request)` hears of each that is answered."""

    def __init__(self, call_at, ended, costs, *, lanes, slots, max_queued=1024):
        self.scheduler = Scheduler(lanes, max_queued, max_queued * 4096)
        self.is_gone = False
        self._call_at, self._ended, self._costs = call_at, ended, costs
        self._lanes = [_Lane() for _ in range(lanes)]
        self._room = slots // lanes
        # By sequence, those that wait.
        self._waiting = {}

    @property
    def num_queued(self):
        """Those that wait."""
        return self.scheduler.num_queued

    def requests(self):
        """All that are here: they wait or run."""
        return [*self._waiting.values(), *(row.request for lane in self._lanes for row in lane.rows)]

    def ask(self, request, now):
        """Take a request, or refuse it as the server would."""
        request.times_asked += 1
        sequence = Sequence("simulated", _source(request.num_input), Decoding(request.num_output))
        try:
            self.scheduler.reserve(now=now)
            self.scheduler.enqueue(sequence, now=now)
        except Overloaded:
            request.is_refused = True
            return
        self._waiting[sequence] = request
        self._wake(now)

    def _wake(self, now):
        """Let each lane that has room look at the queue: an idle one now, another one where its step ends."""
        for number, lane in enumerate(self._lanes):
            if len(lane.rows) < self._room:
                self._call(number, max(now, self._step_end(lane, now)))

    def _step_end(self, lane, now):
        if not lane.rows or now <= lane.at:
            return lane.at
        step = self._costs.step(len(lane.rows))
        return lane.at + math.ceil((now - lane.at) / step - 1e-9) * step

    def _call(self, number, when):
        lane = self._lanes[number]
        lane.turn += 1
        self._call_at(when, self._turn, (number, lane.turn))

    def _turn(self, argument, now):
        """One lane between two steps: end rows, admit some, and say when to come again."""
        number, turn = argument
        lane = self._lanes[number]
        if self.is_gone or turn != lane.turn:
            return
        self._move(lane, number, now)
        self._admit(lane, number, now)
        if not lane.rows:
            return
        left = min(row.left for row in lane.rows)
        # Where others wait and there is room, the lane looks again after one step.
        steps = 1 if self.scheduler.waiting and len(lane.rows) < self._room else left
        self._call(number, lane.at + steps * self._costs.step(len(lane.rows)))

    def _move(self, lane, number, now):
        if lane.rows and now > lane.at:
            steps = round((now - lane.at) / self._costs.step(len(lane.rows)))
            for row in lane.rows:
                row.left -= steps
        lane.at = now
        for row in [row for row in lane.rows if row.left <= 0]:
            lane.rows.remove(row)
            self.scheduler.free(number)
            self.scheduler.settle(row.sequence)
            row.request.ended = now
            self._ended(row.request)

    def _admit(self, lane, number, now):
        room = self._room - len(lane.rows)
        taken = self.scheduler.take(number, Intake(most=room, budget=512, room=room), now) if room else []
        for sequence in taken:
            lane.rows.append(_Row(self._waiting.pop(sequence), sequence, sequence.decoding.max_new_tokens))
        lane.at += self._costs.read_token_s * sum(sequence.num_input_tokens for sequence in taken)
        for row in lane.rows[len(lane.rows) - len(taken) :]:
            row.request.first = lane.at + self._costs.step(len(lane.rows))
        closed = self.scheduler.closed
        closed.add(number) if len(lane.rows) == self._room else closed.discard(number)
