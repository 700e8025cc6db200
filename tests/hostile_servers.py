"""Servers that are none: they answer a client with silence, garbage, HTTP/1.1, or HTTP/2 that breaks the rules."""

import socket
import threading
from contextlib import contextmanager, suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived
from h2.exceptions import ProtocolError

_PIECE = 1 << 16
_WATCH = "/grpc.health.v1.Health/Watch"
HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


@contextmanager
def served(handle):
    """host:port of a server that lets `handle` have each connection, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def one(connection):
        with suppress(OSError), connection:
            handle(connection)

    def accept():
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for each in (listener, *connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def until_closed(connection):
    """Read on, and say nothing."""
    while connection.recv(_PIECE):
        pass


def greeted(connection):
    """HTTP/2 on a connection, whose first frame, SETTINGS, has been sent."""
    wire = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
    wire.initiate_connection()
    connection.sendall(wire.data_to_send())
    return wire


def close_behind_settings(connection):
    """As a server that is killed just then."""
    greeted(connection)


def settings_alone(connection):
    """Speak HTTP/2, and answer nothing."""
    greeted(connection)
    until_closed(connection)


def answering(answer, *, watch=True):
    """Answer each call by `answer(wire, stream_id)`, and say of health that all is well, unless `watch` is False."""

    def react(wire, event):
        if isinstance(event, RequestReceived):
            if watch and dict(event.headers)[":path"] == _WATCH:
                wire.send_headers(event.stream_id, HEADERS)
                wire.send_data(event.stream_id, framed(b"\x08\x01"))
            else:
                answer(wire, event.stream_id)
        if isinstance(event, DataReceived):
            wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def handle(connection):
        wire = greeted(connection)
        while data := connection.recv(_PIECE):
            for event in wire.receive_data(data):
                # By now the call may be over, or the connection.
                with suppress(ProtocolError):
                    react(wire, event)
            connection.sendall(wire.data_to_send())
            if wire.state_machine.state.name == "CLOSED":
                return

    return handle


def framed(message, *, compressed=False):
    """A message as gRPC frames it."""
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message


def reset(code):
    """Each stream ends at once."""
    return answering(lambda wire, stream: wire.reset_stream(stream, code))


def go_away(code):
    """Each connection ends at its first call."""
    return answering(lambda wire, stream: wire.close_connection(code))


def status_of_http(status):
    """What a proxy says that knows no gRPC."""
    return answering(lambda wire, stream: wire.send_headers(stream, [(":status", status)], end_stream=True))


def message(data, *, trailers=(("grpc-status", "0"),), encoding=None):
    """Each call is answered by these bytes as a frame, and by these trailers; None for no end."""

    def answer(wire, stream):
        wire.send_headers(stream, HEADERS + ([("grpc-encoding", encoding)] if encoding else []))
        for begin in range(0, len(data), wire.max_outbound_frame_size):
            wire.send_data(stream, data[begin : begin + wire.max_outbound_frame_size])
        if trailers is not None:
            wire.send_headers(stream, trailers, end_stream=True)

    return answering(answer)
