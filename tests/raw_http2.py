"""A caller that speaks HTTP/2 itself: it sends half messages, reads nothing, and closes no call that it opened."""

import base64
import socket
import ssl
import struct
import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
from google.rpc import error_details_pb2, status_pb2
from h2.exceptions import ProtocolError

_CODES = h2.settings.SettingCodes
# As long as a server may take: see process.py.
_WAIT_S = 180
# HTTP/2's (RFC 9113, sections 4.1 and 6.8).
_FRAME_HEADER = 9
_GOAWAY = 7


class RawCaller:
    """One connection. `window`: how many bytes of each answer the server may send before this reads on."""

    def __init__(self, target, *, window=None, token=None, context=None):
        """`context` is that of TLS."""
        host, _, port = target.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.http2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False)
        )
        if window is not None:
            values = {_CODES.INITIAL_WINDOW_SIZE: window, _CODES.ENABLE_PUSH: 0}
            self.http2.local_settings = h2.settings.Settings(client=True, initial_values=values)
        self.http2.initiate_connection()
        self._token = token
        self._rest = b""
        # By stream: what came, the headers and trailers, and how it ended.
        self.data, self.headers, self.ended = {}, {}, {}
        # How the connection ended, and the error of a GOAWAY.
        self.closed = self.goaway = None
        # Whether what comes is read at once. If not, `read_on` says how much is.
        self.reads = True
        self._flush()
        # Until the server has said what it takes, this side knows no bound.
        self.wait_until(lambda: self._is_settled)

    _is_settled = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def open(self, method, *, headers=(), end=False):
        """Begin a call and send none of its message; its stream."""
        stream = self.http2.get_next_available_stream_id()
        fixed = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost")]
        fixed += [("content-type", "application/grpc"), ("te", "trailers")]
        if self._token:
            fixed.append(("authorization", f"Bearer {self._token}"))
        self.http2.send_headers(stream, [*fixed, *headers], end_stream=end)
        self._flush()
        return stream

    def send(self, stream, data, *, end=False, timeout_s=_WAIT_S):
        """Send as much as the server lets; how much that was."""
        sent, until = 0, time.monotonic() + timeout_s
        while sent < len(data) and stream not in self.ended and not self.closed:
            try:
                room = min(self.http2.local_flow_control_window(stream), self.http2.max_outbound_frame_size)
                part = data[sent : sent + room]
                if part:
                    self.http2.send_data(stream, part, end_stream=end and sent + len(part) == len(data))
                    sent += len(part)
                    self._flush()
            except ProtocolError:
                break
            if not part and time.monotonic() > until:
                break
            self.pump(0 if part else 0.02)
        return sent

    def call(self, method, message, **more):
        """Begin a call with its whole message; its stream."""
        stream = self.open(method, **more)
        self.send(stream, framed(message), end=True)
        return stream

    def pump(self, seconds=0.05):
        """Take what comes, for a time."""
        until = time.monotonic() + seconds
        while not self.closed:
            self.socket.settimeout(max(0.0, until - time.monotonic()) or 0.0001)
            try:
                data = self.socket.recv(1 << 18)
            except (TimeoutError, ssl.SSLWantReadError, BlockingIOError):
                return
            except OSError as error:
                self.closed = repr(error)
                return
            if not data:
                self.closed = "closed"
                return
            for event in self.http2.receive_data(self._without_goaway(data)):
                self._take(event)
            self._flush()

    def _without_goaway(self, data):
        """Whole frames of what came. A GOAWAY is noted and left out: the library takes nothing behind one."""
        self._rest += data
        kept = b""
        while len(self._rest) >= _FRAME_HEADER:
            size = _FRAME_HEADER + int.from_bytes(self._rest[:3], "big")
            if len(self._rest) < size:
                break
            if self._rest[3] == _GOAWAY:
                self.goaway = int.from_bytes(self._rest[13:17], "big")
            else:
                kept += self._rest[:size]
            self._rest = self._rest[size:]
        return kept

    def wait_until(self, condition, timeout_s=_WAIT_S):
        """Take what comes until a condition holds; whether it came to hold."""
        until = time.monotonic() + timeout_s
        while not condition() and time.monotonic() < until:
            self.pump(0.02)
            if self.closed:
                break
        return condition()

    def status(self, stream, timeout_s=_WAIT_S):
        """(code's number, reason) of a call's end, or None if it did not end with a status."""
        self.wait_until(lambda: stream in self.ended, timeout_s)
        headers = self.headers.get(stream, {})
        if "grpc-status" not in headers:
            return None
        return int(headers["grpc-status"]), _reason(headers.get("grpc-status-details-bin"))

    def reset(self, stream):
        """Cancel a call."""
        self.http2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def read_on(self, stream, num_bytes):
        """Let the server send so much more of an answer."""
        self.http2.increment_flow_control_window(num_bytes, stream)
        self.http2.increment_flow_control_window(num_bytes)
        self._flush()

    def _take(self, event):
        match event:
            case h2.events.RemoteSettingsChanged():
                self._is_settled = True
            case h2.events.DataReceived():
                self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
                if self.reads:
                    self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                self.headers.setdefault(event.stream_id, {}).update(event.headers)
            case h2.events.StreamEnded():
                self.ended.setdefault(event.stream_id, "end")
            case h2.events.StreamReset():
                self.ended.setdefault(event.stream_id, f"reset {h2.errors.ErrorCodes(event.error_code).name}")

    def _flush(self):
        data = self.http2.data_to_send()
        if data:
            self.socket.settimeout(_WAIT_S)
            try:
                self.socket.sendall(data)
            except OSError as error:
                self.closed = repr(error)


def framed(message):
    """A message as gRPC frames it: not compressed, and its length."""
    return b"\0" + struct.pack(">I", len(message)) + message


def unfinished(num_bytes):
    """A message of which the last byte does not come."""
    return b"\0" + struct.pack(">I", num_bytes) + bytes(num_bytes - 1)


def _reason(details):
    if not details:
        return ""
    data = base64.b64decode(details + "=" * (-len(details) % 4))
    info = error_details_pb2.ErrorInfo()
    for detail in status_pb2.Status.FromString(data).details:
        detail.Unpack(info)
    return info.reason
