"""A server with the settings that it has by default stays inside the memory of the shipped pod, whatever is tried."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from process import ServerProcess
from raw_http2 import RawCaller, unfinished
from wire_asks import CHECK, CLASSIFY, GENERATE, MEBIBYTE, OK, at_rest, large_answer, picture

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]
# resources.limits.memory of deploy/kubernetes/base.
POD_BYTES = 2048 * MEBIBYTE


def test_the_server_stays_inside_its_pod(few):
    """Unfinished messages, probes, and answers that nobody reads, all at once; an honest caller goes on.

    Its peak was 486 MiB on 2026-11-26.
    """
    with ServerProcess(few) as server, ExitStack() as stack:
        server.wait_for("ready")
        honest = stack.enter_context(RawCaller(server.target))
        unread = [stack.enter_context(RawCaller(server.target, window=0)) for _ in range(4)]
        hostile = [stack.enter_context(RawCaller(server.target)) for _ in range(4)]
        for caller in unread:
            for _ in range(25):
                caller.call(GENERATE, large_answer())
        for caller in hostile:
            for _ in range(900):
                # As much as a caller may push of a message that it does not finish, before anybody looks.
                caller.send(caller.open(CLASSIFY), unfinished(64_000), timeout_s=0)
        for _ in range(20):
            for caller in hostile:
                caller.send(caller.open(CLASSIFY), unfinished(15 * MEBIBYTE), timeout_s=5)
                caller.send(caller.open(CHECK), unfinished(15 * MEBIBYTE), timeout_s=5)
            assert (OK, "") == honest.status(honest.call(CLASSIFY, picture()))
        peak = _peak_bytes(server)
        assert peak < POD_BYTES
        stack.close()
        server.wait_until(lambda: at_rest(server))


def _peak_bytes(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024
