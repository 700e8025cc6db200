"""Replicas of which a client asks any: arrivals at random, a zone that is lost, an autoscaler that is late."""

import heapq
import math
from itertools import count
from random import Random
from typing import NamedTuple

from simulated_replica import Replica, Request

ZONES = 3


class Autoscaler(NamedTuple):
    """As Kubernetes' by the queue: it looks each `period_s`, and a new replica serves after `load_s`."""

    queued: float = 4.0
    period_s: float = 15.0
    load_s: float = 60.0
    most: int = 1000


class Cluster:
    """A virtual clock and what happens on it. `requests` has all that ever came."""

    def __init__(self, costs, num_replicas, *, lanes=2, slots=32, seed=0):
        self.now = 0.0
        self.requests = []
        # By time: seconds, replicas that serve, requests that wait.
        self.seen = []
        self._random = Random(seed)
        self._events, self._order = [], count()
        self._shape = {"lanes": lanes, "slots": slots}
        self._costs = costs
        self.replicas = [self._new() for _ in range(num_replicas)]

    def call_at(self, when, function, argument=None):
        """Let something happen: `function(argument, now)`."""
        heapq.heappush(self._events, (when, next(self._order), function, argument))

    def run(self, seconds, rate, lengths):
        """Let requests come for so long, at `rate(now)` a second, and wait until all have ended.

        `lengths(random)` is the number of tokens of an input and of its answer.
        """

        def come(_, now):
            if now < seconds:
                request = Request(now, *lengths(self._random))
                self.requests.append(request)
                self._ask(request, now)
                self.call_at(now + self._random.expovariate(rate(now)), come)

        def look(_, now):
            if now < seconds:
                self.seen.append((now, len(self.replicas), sum(each.num_queued for each in self.replicas)))
                self.call_at(now + 1.0, look)

        self.call_at(self._random.expovariate(rate(0.0)), come)
        self.call_at(0.0, look)
        while self._events:
            self.now, _, function, argument = heapq.heappop(self._events)
            function(argument, self.now)

    def lose_zone(self, when):
        """Let every third replica go at once. What was in them is asked again elsewhere, as the SDK does."""

        def lose(_, now):
            gone = self.replicas[::ZONES]
            self.replicas = [each for each in self.replicas if each not in gone]
            for replica in gone:
                replica.is_gone = True
                for request in replica.requests():
                    request.first = math.nan
                    self._ask(request, now)

        self.call_at(when, lose)

    def scale(self, autoscaler, until):
        """Let an autoscaler add replicas. None is taken away: that is five minutes later than what is looked at."""
        coming = 0

        def look(_, now):
            nonlocal coming
            queued = sum(each.num_queued for each in self.replicas)
            have = len(self.replicas)
            wanted = min(autoscaler.most, math.ceil(queued / autoscaler.queued))
            # It looks at pods that are there, and counts those that load.
            for _ in range(max(0, wanted - have - coming)):
                coming += 1
                self.call_at(now + autoscaler.load_s, add)
            if now < until:
                self.call_at(now + autoscaler.period_s, look)

        def add(_, now):
            nonlocal coming
            coming -= 1
            self.replicas.append(self._new())

        self.call_at(autoscaler.period_s, look)

    def _new(self):
        return Replica(self.call_at, lambda request: None, self._costs, **self._shape)

    def _ask(self, request, now):
        self._random.choice(self.replicas).ask(request, now)
