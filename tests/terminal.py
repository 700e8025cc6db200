"""The command as a process, also on a terminal."""

import os
import subprocess
import sys

WEFT = [sys.executable, "-m", "weft_command"]


def on_a_terminal(argv):
    """Run a command whose stderr is a terminal; returns its stdout and what the terminal got."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=theirs, env={"TERM": "xterm"})
    out, _ = process.communicate(timeout=120)
    os.write(theirs, b"\0")  # so that there is something to read
    shown = b""
    while not shown.endswith(b"\0"):
        shown += os.read(ours, 1 << 16)
    os.close(theirs)
    os.close(ours)
    return out, shown.rstrip(b"\0")
