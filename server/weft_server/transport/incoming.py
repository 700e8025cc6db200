"""Messages on their way in, and those that are held until their calls end: how many bytes, whose, and for how long.

gRPC takes a whole message before a handler sees it, however long that takes, and tells nobody. So each handler reads
its one message itself, by `Incoming.read`, and one sweep a quarter of a second looks at those that have not come whole.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc.aio

from weft_server.errors import DeadlineExpired, Draining, InvalidRequest, MessageTooSlow, Overloaded, RequestError
from weft_server.tally import Largest, Tally
from weft_server.transport.connections import peer_key
from weft_server.transport.handlers import abort
from weft_server.transport.status import to_status, with_request_id
from weft_server.transport.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.models.request_context import RequestContext
    from weft_server.transport.connections import Connections
    from weft_server.transport.status import Status

MAX_HELD_BYTES = 256 * 1024 * 1024
# A caller's share of what is held, so that one alone does not fill it.
MAX_SHARE = 0.8
# How many messages may be on their way that were so a sweep ago. What comes at once is not among them.
MAX_RECEIVING = 1024
SWEEP_S = 0.25
# A caller who goes ends its messages too. gRPC says so within this time.
_GONE_S = 0.05


@dataclass(slots=True, eq=False)
class _Reception:
    """A message that has not come whole."""

    call: RequestContext
    context: Any
    peer: str
    # Who answers for it: a caller by name, or who has none by the connection.
    holder: str
    until: float
    # Of its call.
    deadline: float
    # Whether the last sweep found it.
    is_old: bool = False
    # Why it was ended.
    error: RequestError | None = None


class Incoming:
    """One for all of a server's ports. To be used on the event loop's thread."""

    def __init__(
        self,
        connections: Connections,
        max_bytes: int = MAX_HELD_BYTES,
        max_message_bytes: int = MAX_HELD_BYTES,
        max_receiving: int = MAX_RECEIVING,
        timeout_s: float = 30.0,
    ) -> None:
        """`max_bytes` bounds the messages of all together. One has at most `max_message_bytes`, and `timeout_s`."""
        self._connections = connections
        self._max_bytes = max_bytes
        self._max_message_bytes = max_message_bytes
        self._max_receiving = max_receiving
        self._timeout_s = timeout_s
        # Oldest first.
        self._receiving: dict[_Reception, None] = {}
        self._sweep = Sweep(self._look, self._receiving, SWEEP_S)
        self.ending: set[asyncio.Task[None]] = set()
        self.held_by = Tally()
        # Of the messages that have come whole and are held.
        self.num_bytes = 0
        # Messages that were given up, because they came too slowly or because others needed the room.
        self.num_ended = 0

    @property
    def num_receiving(self) -> int:
        """How many messages are on their way."""
        return len(self._receiving)

    async def read(self, call: RequestContext, context: Any) -> Any:
        """Return the one message of a call. Raises InvalidRequest if there is none, and as `read_next` does."""
        data = await self.read_next(call, context)
        if data is grpc.aio.EOF:
            raise InvalidRequest("", "the call has no message", "NO_MESSAGE")
        return data

    async def read_next(self, call: RequestContext, context: Any) -> Any:
        """Return the next message of a call, or EOF if there is none.

        Raises:
            MessageTooSlow: it has not come whole in time.
            DeadlineExpired: nor before the call's deadline.
            Overloaded: others need the room.
        """
        reception = _Reception(call, context, call.peer, call.holder, time.monotonic() + self._timeout_s, call.deadline)
        self._receiving[reception] = None
        self._sweep.begin()
        try:
            data = await context.read()
        except grpc.aio.AbortError:
            if reception.error is None:
                raise
            raise reception.error from None
        finally:
            del self._receiving[reception]
        # It may have come just before it was ended.
        if reception.error is not None:
            raise reception.error
        if data is grpc.aio.EOF:
            # So does a message end whose caller goes. Then this is cancelled.
            await asyncio.sleep(_GONE_S)
        return data

    def refuse(self, error: RequestError) -> None:
        """End all that have not come whole."""
        for reception in list(self._receiving):
            if reception.error is None:
                self._end(reception, error)

    def hold(self, call: RequestContext, num_bytes: int) -> None:
        """Count a message that has come, before it is parsed. `let_go` must follow, also behind an error.

        Raises:
            Overloaded: with the others it is too much. One by itself never is.
        """
        call.num_bytes = num_bytes
        self.num_bytes += num_bytes
        self.held_by[call.holder] += num_bytes
        if num_bytes < self.num_bytes > self._max_bytes:
            held = self.num_bytes - num_bytes
            raise Overloaded("BYTE_BUDGET", f"requests of {held:,} bytes are held already")
        if num_bytes < self.held_by[call.holder] > self._max_bytes * MAX_SHARE:
            held = self.held_by[call.holder] - num_bytes
            raise Overloaded("BYTE_BUDGET", f"of one caller, requests of {held:,} bytes are held already")

    def let_go(self, call: RequestContext) -> None:
        """Take the message of a call off the count."""
        self.num_bytes -= call.num_bytes
        self.held_by.less(call.holder, call.num_bytes)
        call.num_bytes = 0

    def _look(self) -> None:
        now = time.monotonic()
        for reception in list(self._receiving):
            if reception.error is None and now > min(reception.until, reception.deadline):
                self._end(reception, MessageTooSlow() if now > reception.until else DeadlineExpired())
        self._evict([each for each in self._receiving if each.is_old and each.error is None])
        for reception in self._receiving:
            reception.is_old = True

    def _evict(self, old: list[_Reception]) -> None:
        """End messages of who has most of them, until the rest fits.

        None of `old` came at once. An honest message mostly does, and a slow one is seldom of who has most.
        """
        room = self._max_bytes - self.num_bytes
        if len(old) <= self._max_receiving and len(old) * self._max_message_bytes <= room:
            return
        sizes = self._sizes(old)
        rest = self._end_largest(old, sizes.__getitem__, room)
        self._end_largest(rest, lambda _: 1, self._max_receiving)

    def _end_largest(
        self, old: list[_Reception], weigh: Callable[[_Reception], float], most: float
    ) -> list[_Reception]:
        """End the oldest of the holder that has most, until no more than `most` is left. Return what is left."""
        of_holder: defaultdict[str, deque[_Reception]] = defaultdict(deque)
        for reception in old:
            of_holder[reception.holder].append(reception)
        weights = {holder: sum(map(weigh, theirs)) for holder, theirs in of_holder.items()}
        largest, total = Largest(weights), sum(weights.values())
        while largest and total > most:
            holder = largest.key
            reception = of_holder[holder].popleft()
            largest.take(holder, weigh(reception))
            total -= weigh(reception)
            if not of_holder[holder]:
                largest.drop(holder)
            self._end(reception, Overloaded("BYTE_BUDGET", "too many messages are on their way; this one was slow"))
        return [each for each in old if each.error is None]

    def _sizes(self, old: list[_Reception]) -> dict[_Reception, float]:
        """How many bytes each has at most: as much as one may have, and together as much as its connection sent."""
        peers = {each.peer: peer_key(each.peer) for each in old}
        received = self._connections.bytes_received(peers.values())
        num_of: defaultdict[str, int] = defaultdict(int)
        for each in old:
            num_of[each.peer] += 1
        most = self._max_message_bytes
        return {
            each: min(most, received.get(peers[each.peer], most * num_of[each.peer]) / num_of[each.peer])
            for each in old
        }

    def _end(self, reception: _Reception, error: RequestError) -> None:
        """Refuse a call whose handler reads. gRPC drops what has come of its message."""
        reception.error = error
        self.num_ended += not isinstance(error, Draining)
        ending = asyncio.get_running_loop().create_task(
            _tell(reception.context, with_request_id(to_status(error), reception.call))
        )
        self.ending.add(ending)
        ending.add_done_callback(self.ending.discard)


async def _tell(context: Any, status: Status) -> None:
    """Send the status of a call that is ended.

    Where its connection has ended meanwhile, nobody hears it. Where its message came just then, its handler has sent
    the status.
    """
    with suppress(grpc.aio.InternalError, grpc.aio.UsageError):
        await abort(context, status)
