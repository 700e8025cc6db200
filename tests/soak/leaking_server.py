"""A server that leaks: it keeps some memory of each call for ever. The gate has to find it.

    python tests/soak/leaking_server.py BYTES

It is the real server, with one of its functions replaced.
"""

import sys

from weft_server.__main__ import app
from weft_server.telemetry.metrics import Metrics

count_call, kept = Metrics.count_call, []


def leak(self, *call):
    """Count a call, and keep some memory."""
    kept.append(b"x" * NUM_BYTES)
    count_call(self, *call)


if __name__ == "__main__":
    NUM_BYTES = int(sys.argv.pop())
    Metrics.count_call = leak
    app()
