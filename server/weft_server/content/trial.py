"""Tries a grammar in a process of its own. There a parser may take what it likes, and the server goes on.

Parsers bound what they do, but not all of it: the time of a step within them grows with what they work on. So a grammar
that may be one of those is built in the server only if it was built here within bounds.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
from functools import lru_cache
from typing import Any

from weft_server.errors import Overloaded

# What a parser may spend. A thousand of `initial_lexer_fuel` take up to a millisecond, so do 20 thousand items. A state
# takes up to 2 kB.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 100_000,
    "step_lexer_fuel": 50_000,
    "step_max_items": 20_000,
    "max_lexer_states": 10_000,
    "max_grammar_size": 100_000,
}
# What a trial may take: processor time, seconds until nobody waits any more, and address space, most of it for a stack.
_CPU_S = 2
_WAIT_S = 20
_STACK_BYTES = 256 << 20
_SPACE_BYTES = 520 << 20
_MODULE = "weft_server.content.trial"
_PASSES, _TAKES_TOO_MUCH, _NO_ROOM = 0, 3, 4
# How a trial ends that has a verdict. One that takes too much time, memory or stack gets a signal.
_VERDICTS = {_PASSES: True, _TAKES_TOO_MUCH: False} | dict.fromkeys(
    (-signal.SIGXCPU, -signal.SIGABRT, -signal.SIGSEGV), False
)


@lru_cache(64)
def passes(grammar: str) -> bool:
    """Whether a grammar of Lark's notation is built, or refused in good order, within what a trial may take.

    Raises:
        Overloaded: the machine did not let the trial end. That is no fault of the grammar's, and is not remembered.
    """
    # Of what comes from callers, only the standard input reaches the process.
    command = [sys.executable, "-m", _MODULE]
    try:
        ended = subprocess.run(command, input=grammar.encode(), capture_output=True, timeout=_WAIT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise Overloaded("MACHINE_BUSY", f"the constraint could not be tried within {_WAIT_S:g} s") from error
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.ENOMEM):
            raise
        raise Overloaded("MACHINE_BUSY", "the constraint could not be tried: no process could be started") from error
    # It is killed by none of its own limits.
    if ended.returncode in (-signal.SIGKILL, _NO_ROOM):
        raise Overloaded("MACHINE_BUSY", "the constraint could not be tried: memory is short")
    if ended.returncode not in _VERDICTS:
        last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"a trial ended with {ended.returncode}: {last}. This is a bug.")
    return _VERDICTS[ended.returncode]


def _build(grammar: str) -> None:
    import llguidance  # noqa: PLC0415 - an extra

    try:
        limits = llguidance.LLParserLimits(verbose_errors=False, **LIMITS)
        tokenizer = llguidance.LLTokenizer("byte")
        source = llguidance.LLMatcher.grammar_from_lark(grammar)
        matcher = llguidance.LLMatcher(tokenizer, source, log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()
    except BaseException:  # noqa: BLE001 - no memory, or a panic: the parser can do nothing with this grammar
        os._exit(_TAKES_TOO_MUCH)
    os._exit(_PASSES)


def main() -> None:
    """Build the grammar of the standard input. The exit code says whether it passes."""
    grammar = sys.stdin.buffer.read().decode()
    # At the first limit its signal comes. At the second that would be the same one as of a machine without memory.
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, 2 * _CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_SPACE_BYTES, _SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_build, args=(grammar,))
    try:
        thread.start()
    except RuntimeError:
        sys.exit(_NO_ROOM)
    thread.join()
    sys.exit(1)


if __name__ == "__main__":
    main()
