"""A real receiver of OTLP by gRPC, in process: what a collector is to a server that traces."""

import threading
import time
from concurrent import futures
from contextlib import contextmanager

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent. While `hangs` is set, it answers nobody."""

    def __init__(self):
        self.target = ""
        self.hangs = threading.Event()
        self.resources = []
        self._spans = []
        self._news = threading.Condition()

    def Export(self, request, context):  # noqa: N802 - gRPC names it
        """Take spans."""
        while self.hangs.is_set() and context.is_active():
            time.sleep(0.05)
        with self._news:
            for each in request.resource_spans:
                self.resources.append({item.key: item.value.string_value for item in each.resource.attributes})
                self._spans += [span for scope in each.scope_spans for span in scope.spans]
            self._news.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self):
        """All that came."""
        with self._news:
            return list(self._spans)

    def wait_for(self, name, number=1, timeout_s=60):
        """The spans above others of that name, once there are so many."""
        deadline = time.monotonic() + timeout_s
        with self._news:
            while len(found := [span for span in self._spans if span.name == name]) < number:
                left = deadline - time.monotonic()
                assert left > 0, f"{len(found)} of {number} {name!r} in {[span.name for span in self._spans]}"
                self._news.wait(left)
        return found

    def stages(self, span):
        """Those below a span, by name, in the order of their beginnings."""
        below = [each for each in self.spans() if each.parent_span_id == span.span_id]
        return {each.name: each for each in sorted(below, key=lambda each: each.start_time_unix_nano)}


def attributes(span):
    """A span's attributes."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


@contextmanager
def receiving():
    """A receiver at a free port."""
    receiver = Receiver()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    receiver.target = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        receiver.hangs.clear()
        server.stop(None)
