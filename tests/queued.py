"""Sequences that wait, and a scheduler's lane that takes them."""

import math

import numpy as np

from weft_server.engine.lane import Intake
from weft_server.sequence import ANYBODY, Decoding, Sequence
from weft_server.source import Ids


def make(name, standing=ANYBODY, *, accepted=0.0, length=8, new=8, width=1, deadline=math.inf):
    """A sequence that waits since `accepted`."""
    decoding = Decoding(max_new_tokens=new, num_outputs=width)
    sequence = Sequence(name, Ids(np.zeros(length, np.int64)), decoding, standing=standing, deadline=deadline)
    sequence.times.accepted = accepted
    return sequence


def wait(scheduler, *sequences, now=0.0):
    """Let them in one after the other."""
    for sequence in sequences:
        scheduler.reserve(sequence.standing, now=now)
        scheduler.enqueue(sequence, now=now)


def one(scheduler, now=0.0):
    """The name of the one that a lane takes, which ends at once."""
    (taken,) = scheduler.take(0, Intake(most=1, budget=10**6), now=now)
    scheduler.free(0, taken.width, taken.standing.tenant)
    scheduler.settle(taken)
    return taken.request_id
