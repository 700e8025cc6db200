"""Tries grammars in a process of its own. There a parser may take what it likes, and the server goes on.

Parsers bound what they do, but not all of it: a schema of 42 bytes may have them count to a hundred million. A thread
that does it cannot be ended, and a process can. So a grammar is built in the server only if it was built here within
bounds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft_server.errors import Overloaded
from weft_server.structured_output.sandbox_verdicts import SandboxVerdicts

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.preprocessing.wanted import Wanted

Result = TypeVar("Result")
# What a parser may spend. A thousand of `initial_lexer_fuel` take up to a millisecond, so do 20 thousand items. A state
# takes up to 2 kB.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 100_000,
    "step_lexer_fuel": 50_000,
    "step_max_items": 20_000,
    "max_lexer_states": 10_000,
    "max_grammar_size": 100_000,
}
# What a trial may take: processor time, memory on its way and at its end, and seconds until nobody waits any more.
CPU_S = 1.0
_ROOM_BYTES = 160 << 20
HELD_BYTES = 64 << 20
_WAIT_S = 20
# How often it is asked whether somebody still waits.
_LOOK_S = 0.05
_STACK_BYTES = 256 << 20
# What an allocator takes for each byte that it gives: it loses some between the pieces. Measured: 1.3.
_RESIDENT_FOR_ALLOCATED = 1.4
# A process that has grown by this much through its trials is replaced by another one.
_WORN_BYTES = 8 << 20
_MODULE = "weft_server.structured_output.grammar_sandbox"
_NO_ROOM = 4
_TAKES_TOO_MUCH = -1
# How a trial ends its process where that is a verdict: too much time, memory or stack gets a signal.
_ENDS = {-signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV}


class GrammarSandbox:
    """Those of one model: their process, which starts with the first one, and what they found. Thread-safe."""

    def __init__(self) -> None:
        self._verdicts = SandboxVerdicts()
        self._lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def held_bytes(self, grammar: str, tenant: str, wanted: Wanted) -> int | None:
        """Return what memory a grammar of Lark's notation holds once it is built. None: it takes more than it may.

        A grammar that is refused in good order holds next to nothing. What was found is remembered for the tenant.

        Raises:
            Overloaded: the machine did not let the trial end. That is no fault of the grammar's, and not remembered.
            DeadlineExpired: nobody waits any more. The trial has ended then.
        """
        with self._lock:
            known = self._verdicts.of(tenant, grammar, time.monotonic())
            if known is None:
                known = self.tried(grammar, wanted)
                self._verdicts.note(tenant, grammar, time.monotonic(), known)
        return None if known == _TAKES_TOO_MUCH else known

    def stop(self) -> None:
        """End the process, and a trial that is on its way there."""
        if (process := self.process) is not None:
            process.kill()
        with self._lock:
            self._end()

    def tried(self, grammar: str, wanted: Wanted) -> int:
        """Try a grammar now. Returns as `held_bytes` does, or -1 for None. Holds the lock."""
        if self.process is None or self.process.poll() is not None:
            self._end()
            self._start()
        ours = self._socket
        assert ours is not None
        until, is_fit, text, answer = time.monotonic() + _WAIT_S, False, grammar.encode(), b""
        rest = memoryview(b"%d\n" % len(text) + text)
        try:
            while rest:
                rest = rest[_patiently(wanted, until, ours.send, rest) :]
            while not answer.endswith(b"\n"):
                got = _patiently(wanted, until, ours.recv, 64)
                if not got:
                    return self._verdict_of_end()
                answer += got
            held, worn = map(int, answer.split())
            is_fit = not worn
        except ConnectionError:
            return self._verdict_of_end()
        finally:
            if not is_fit:
                self._end()
        return held if held <= HELD_BYTES else _TAKES_TOO_MUCH

    def _verdict_of_end(self) -> int:
        """Return the verdict of a process that has ended instead of answering."""
        assert self.process is not None
        code = self.process.wait()
        if code in _ENDS:
            return _TAKES_TOO_MUCH
        # It is killed by none of its own limits.
        if code in (-signal.SIGKILL, _NO_ROOM):
            raise Overloaded("MACHINE_BUSY", "the constraint could not be tried: memory is short")
        assert self.process.stderr is not None
        last = self.process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"a trial ended with {code}: {last}. This is a bug.")

    def _start(self) -> None:
        ours, its = socket.socketpair()
        try:
            # Of what comes from callers, only what the socket gives reaches it. A session of its own: Ctrl-C is for the
            # server alone, which still answers those that it has.
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", _MODULE, str(its.fileno()), str(CPU_S)],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            if error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
            why = "the constraint could not be tried: no process could be started"
            raise Overloaded("MACHINE_BUSY", why) from error
        finally:
            its.close()
        # Whatever the process does or does not, neither sending nor receiving waits for longer.
        ours.settimeout(_LOOK_S)
        self._socket = ours

    def _end(self) -> None:
        process, ours, self.process, self._socket = self.process, self._socket, None, None
        if ours is not None:
            ours.close()
        if process is not None:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


def _patiently(wanted: Wanted, until: float, act: Callable[..., Result], *args: object) -> Result:
    """Do what may time out until it does not, while somebody waits for it, and until so many monotonic seconds."""
    while True:
        try:
            return act(*args)
        except TimeoutError:
            wanted.check()
            if time.monotonic() > until:
                why = f"the constraint could not be tried within {_WAIT_S:g} s"
                raise Overloaded("MACHINE_BUSY", why) from None


def _serve(its: socket.socket, cpu_s: float) -> None:
    """Try what comes, one grammar after the other: a line with its bytes, and as many bytes.

    The answer is a line: how many bytes it holds, or -1; and 1 if the process is fit for no more, or 0.
    """
    import llguidance  # noqa: PLC0415 - an extra

    limits = llguidance.LLParserLimits(verbose_errors=False, **LIMITS)
    tokenizer = llguidance.LLTokenizer("byte")
    first, reader = _resident(), its.makefile("rb")
    while True:
        try:
            length = int(reader.readline() or -1)
            text = reader.read(max(0, length))
        except ConnectionError:
            os._exit(0)
        if len(text) != length:
            os._exit(0)
        grammar, before = text.decode(), _allocated()
        # When so much processor time is gone, a signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            source = llguidance.LLMatcher.grammar_from_lark(grammar)
            matcher = llguidance.LLMatcher(tokenizer, source, log_level=0, limits=limits)
            if not matcher.is_error():
                matcher.compute_bitmask()
            held = 0 if matcher.is_error() else _growth(before, first)
            del matcher
        except BaseException:  # noqa: BLE001 - no memory, or a panic: the parser can do nothing with this grammar
            held = _TAKES_TOO_MUCH
        signal.setitimer(signal.ITIMER_PROF, 0)
        worn = held == _TAKES_TOO_MUCH or _resident() - first > _WORN_BYTES
        its.sendall(b"%d %d\n" % (held, worn))


class _Allocator(ctypes.Structure):
    """What `mallinfo2` of glibc returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "_")
    )


def _allocated() -> int | None:
    """Return the bytes that the allocator has given. None: it is not glibc's, which tells."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = _Allocator
    told = libc.mallinfo2()
    return int(told.uordblks + told.hblkhd)


def _growth(before: int | None, first: int) -> int:
    """Return the bytes by which this process has grown since the allocator had given `before`, rather too many.

    Resident memory alone does not tell: an allocator keeps what the last grammar had, and gives it to the next one.
    So without `before` all counts that came since the process began with `first`.
    """
    after = _allocated()
    if before is None or after is None:
        return max(0, _resident() - first)
    return int(max(0, after - before) * _RESIDENT_FOR_ALLOCATED)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def main() -> None:
    """Answer by the socket whose number the first argument is, until it is closed. The second is CPU_S."""
    import llguidance  # noqa: F401, PLC0415 - what it needs by itself is no part of what a trial may take

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    space = taken + _STACK_BYTES + _ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_serve, args=(socket.socket(fileno=int(sys.argv[1])), float(sys.argv[2])))
    try:
        thread.start()
    except RuntimeError:
        sys.exit(_NO_ROOM)
    # From here on a parser may say what a caller sent. Nobody reads it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    thread.join()
    sys.exit(1)


if __name__ == "__main__":
    main()
