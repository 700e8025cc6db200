"""Where the command `weft` begins: it takes SIGTERM before it imports what takes long.

Process 1 of a container ignores every signal that it has no handler for. So a signal that came meanwhile would be lost.
"""

import os
import signal
import sys


def main() -> int:
    """Run `weft`, and return its exit code."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # Nothing has begun. A server that is told to end does so well, any other command was cut off.
        code = 0 if is_serving(sys.argv) else 128 + signal.SIGTERM
        signal.signal(signal.SIGTERM, lambda *_: os._exit(code))
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        # `weft up` has blocked it for as long as there was no handler.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    try:
        from weft_command.running import run  # noqa: PLC0415 - after the handler
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return run(sys.argv[1:])


def is_serving(argv: list[str]) -> bool:
    """Whether a command line is that of a server."""
    return argv[1:2] == ["serve"] and "--check" not in argv
