"""What peers hold of a server, on all of its ports: connections, open calls, messages and answers on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.errors import Overloaded
from weft_server.tally import Tally
from weft_server.transport.connection_limits import ConnectionLimits
from weft_server.transport.connections import Connections, peer_key
from weft_server.transport.incoming import MAX_HELD_BYTES, Incoming
from weft_server.transport.outgoing import Outgoing

if TYPE_CHECKING:
    from weft_server.models.request_context import RequestContext

# Calls that are open, from their headers until their answers are out. gRPC holds some 80 KiB for each at most, beside
# its message: 64 KiB that a caller may push unread.
MAX_OPEN_CALLS = 4096
# Of those, one connection's. Clients wait beyond it: HTTP/2 tells them.
MAX_CALLS_PER_CONNECTION = 1024
# Of those, one caller's, who is known by name.
MAX_CALLS_SHARE = 0.5
# How many watches of health there may be for each connection that there may be.
WATCHES_PER_CONNECTION = 2
# Calls of health of one connection, and of all beside the watches.
MAX_PROBES_PER_CONNECTION = 64
MAX_PROBES = 1024
# Everybody may ask for health, so there are few places for such messages, and little time. Honest ones need neither:
# they come with their headers.
MAX_PROBES_RECEIVING = 4
PROBE_RECEIVE_S = 2.0


class Traffic:
    """One for a server. To be used on the event loop's thread."""

    def __init__(
        self,
        max_held_bytes: int = MAX_HELD_BYTES,
        max_message_bytes: int = MAX_HELD_BYTES,
        max_open_calls: int = MAX_OPEN_CALLS,
        receive_timeout_s: float = 30.0,
        send_timeout_s: float = 30.0,
        max_connections: int = 1000,
    ) -> None:
        self.connections = Connections()
        self.places = ConnectionLimits(self.connections, max_connections)
        self.incoming = Incoming(self.connections, max_held_bytes, max_message_bytes, timeout_s=receive_timeout_s)
        self.probes = Incoming(
            self.connections,
            MAX_PROBES_RECEIVING * max_message_bytes,
            max_message_bytes,
            MAX_PROBES_RECEIVING,
            PROBE_RECEIVE_S,
        )
        self.outgoing = Outgoing(self.connections, timeout_s=send_timeout_s)
        self._max_open = max_open_calls
        self._open_of = Tally()
        self.num_open = 0
        self._max_probes = MAX_PROBES + WATCHES_PER_CONNECTION * max_connections
        self._probes_of = Tally()
        self.num_probes = 0
        # Connections that were ended for others' probes, and those of HTTP that were ended for others.
        self.num_ended = 0

    def open(self, call: RequestContext) -> None:
        """Count a call whose headers have come. `close` must follow, but not behind an error.

        Raises:
            Overloaded: too many are open, of all or of this caller.
        """
        if self.num_open >= self._max_open:
            raise Overloaded("TOO_MANY_CALLS", f"{self.num_open} calls are open already")
        self.claim(call)
        self.num_open += 1
        call.is_open = True

    def claim(self, call: RequestContext) -> None:
        """Count an open call as its caller's, who is known by name now. Raises Overloaded for one who has too many."""
        if not call.tenant:
            return
        if self._open_of[call.tenant] >= self._max_open * MAX_CALLS_SHARE:
            raise Overloaded("TOO_MANY_CALLS", f"of {call.tenant}, {self._open_of[call.tenant]} calls are open already")
        self._open_of[call.tenant] += 1
        call.open_as = call.tenant

    def open_probe(self, call: RequestContext) -> None:
        """Count a call of health, which everybody may make, apart from the others. `close` must follow.

        In all, one more finds a place always: the connection that has most is ended for it. A server whose probes are
        refused would be restarted for being busy.

        Raises:
            Overloaded: its connection has too many.
        """
        if self._probes_of[call.peer] >= MAX_PROBES_PER_CONNECTION:
            raise Overloaded(
                "TOO_MANY_CALLS", f"{MAX_PROBES_PER_CONNECTION} probes of this connection are open already"
            )
        if self.num_probes >= self._max_probes:
            self.num_ended += self.connections.hang_up([peer_key(self._probes_of.largest)])
        self.num_probes += 1
        self._probes_of[call.peer] += 1
        call.is_probe = True

    def close(self, call: RequestContext) -> None:
        """Take a call off the counts: its answer is out, or given up."""
        self.incoming.let_go(call)
        self.outgoing.end(call)
        self.num_open -= call.is_open
        if call.open_as:
            self._open_of.less(call.open_as)
        if call.is_probe:
            self.num_probes -= 1
            self._probes_of.less(call.peer)

    def figures(self) -> dict[str, float]:
        """Return what is held now and what was given up, by the names of metrics. Any thread may ask."""
        return {
            "connections": self.connections.count(),
            "calls_open": self.num_open + self.num_probes,
            "messages_receiving": self.incoming.num_receiving + self.probes.num_receiving,
            "held_bytes": self.incoming.num_bytes,
            "answers_sending": self.outgoing.num_sending,
            "answers_sending_bytes": self.outgoing.num_bytes,
            "messages_given_up_total": self.incoming.num_ended + self.probes.num_ended,
            "connections_given_up_total": self.num_ended + self.outgoing.num_ended + self.places.num_ended,
        }
