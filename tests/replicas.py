"""Several servers of one repository. Each keeps its port when it is started again, as a pod of a set keeps its name."""

import time
from contextlib import ExitStack

from envoy import free_port
from process import ServerProcess

NUM_REPLICAS = 3


class Replicas:
    """A context manager that starts them all, and leaves none running."""

    def __init__(self, start=ServerProcess, **settings):
        """`start` makes the server of a number, with settings."""
        self._start, self._settings = start, settings
        self._ports = [free_port() for _ in range(NUM_REPLICAS)]
        self._stack = ExitStack()
        self.servers = [None] * NUM_REPLICAS

    def __enter__(self):
        for number in range(NUM_REPLICAS):
            self.start(number)
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def targets(self):
        """host:port of each."""
        return [server.target for server in self.servers]

    def start(self, number):
        """Start one, and wait until it is ready."""
        server = self._start(number, port=self._ports[number], **self._settings)
        self.servers[number] = self._stack.enter_context(server)
        server.wait_for("ready")

    def restart(self, number):
        """Do as an orchestrator does: SIGTERM, wait for the end, start. Returns the seconds to the end and to ready."""
        began = time.monotonic()
        assert 0 == self.servers[number].terminate()
        ended = time.monotonic()
        self.start(number)
        return ended - began, time.monotonic() - ended
