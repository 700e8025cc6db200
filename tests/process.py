"""A real server process on free ports, its log, its metrics and its memory."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import grpc
from prometheus_client.parser import text_string_to_metric_families

from weft_proto.v1 import common_pb2, generation_pb2, generation_pb2_grpc

# How long a server may take for what it does in a second or two: a machine may be busy, or stand still for a while.
PATIENCE_S = 180


class ServerProcess:
    """`python -m weft_server` on a repository; a context manager that leaves nothing running."""

    # What Python runs.
    program = ("-m", "weft_server")
    # What /metrics is asked with, where it asks who calls.
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, repository, **settings):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        settings = {"repository": repository, "port": 0, "http_port": 0, "log_format": "json"} | settings
        environment |= {f"WEFT_{name.upper()}": str(value) for name, value in settings.items()}
        self.log = []
        self.process = subprocess.Popen(
            [sys.executable, *self.program],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        listening = self.wait_for("listening")
        self.target, self.http = listening["grpc"], listening["http"]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()

    def _read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                event = {"event": line.rstrip()}
            with self._news:
                self.hear(event)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def hear(self, event):
        """Take an event of the log."""
        self.log.append(event)

    def calls(self):
        """The log's lines of calls so far: the last one may be written after its answer."""
        return [event for event in self.log if event["event"] == "call"]

    def wait_for(self, name, timeout=PATIENCE_S):
        """The first log event of that name."""
        deadline = time.monotonic() + timeout
        with self._news:
            while True:
                for event in self.log:
                    if event["event"] == name:
                        return event
                left = deadline - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    raise AssertionError(f"no {name!r} in the log: {self.log}")
                self._news.wait(min(left, 0.2))

    def get(self, path, context=None, **headers):
        """(status, body) of an HTTP GET, over TLS if an SSL context is given."""
        asked = urllib.request.Request(f"{'https' if context else 'http'}://{self.http}{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE_S, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def page(self):
        """The text of /metrics."""
        return self.get("/metrics", **self.headers)[1]

    def metrics(self):
        """All samples: (name, frozenset of label items) -> value."""
        samples = {}
        for family in text_string_to_metric_families(self.page()):
            for sample in family.samples:
                samples[sample.name, frozenset(sample.labels.items())] = sample.value
        return samples

    def metric(self, name, **labels):
        """The sum of a metric over all samples that have these labels."""
        wanted, found = set(labels.items()), 0.0
        # A page with many models takes a third of a second to parse whole.
        lines = "".join(f"{line}\n" for line in self.page().splitlines() if line.startswith(name))
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                if sample.name == name and wanted <= sample.labels.items():
                    found += sample.value
        return found

    def wait_until(self, condition, timeout=PATIENCE_S, what="condition"):
        """Poll until `condition()` holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come about in {timeout} s"
            time.sleep(0.02)

    def rss_bytes(self):
        """Resident memory of the server."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def terminate(self, timeout=PATIENCE_S):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code(timeout)

    def exit_code(self, timeout=PATIENCE_S):
        """Wait until the server has ended, whatever ended it."""
        return self.process.wait(timeout)


@contextmanager
def stuck_reader(server):
    """A caller who reads one message of a large answer, so that the server's drain lasts as long as it may."""
    options = [("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    decoding = common_pb2.Decoding(max_new_tokens=126, min_new_tokens=126)
    request = generation_pb2.GenerateRequest(
        token_ids=common_pb2.TokenIds(ids=[5] * 130), decoding=decoding, explain=common_pb2.Explain()
    )
    with grpc.insecure_channel(server.target, options=options) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        call = stub.StreamGenerate(generation_pb2.StreamGenerateRequest(request=request))
        next(call)
        yield
        call.cancel()
