"""`pip install` on one line of the screen: what it is doing now, and at a failure the end of what it said."""

import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

LOG = Path(sys.prefix) / "pip.log"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
SHOWN_AT_FAILURE = 20  # lines
NEXT = re.compile(r"Collecting ([A-Za-z0-9._-]+)")
# "  Downloading torch-2.13.0-cp311-cp311-linux_x86_64.whl (526.6 MB)": the name, and the size.
FETCHED = re.compile(r"\s*(?:Downloading|Using cached) ([A-Za-z0-9._]+)-\d\S* (\([\d.]+ [kMG]B\))")


def step(line: str) -> str | None:
    """Return what a line of pip's means to who waits, or None where it means nothing."""
    if found := FETCHED.match(line):
        return f"{found[1]} {found[2]}"
    if found := NEXT.match(line):
        return found[1]
    if line.startswith("Installing collected packages"):
        return f"packages to unpack: {line.count(',') + 1}"
    if line.startswith("WARNING: Retrying"):
        return "the package index does not answer; trying again"
    return None


def main(arguments: Sequence[str]) -> int:
    """Run `pip install` with the arguments and return its exit status; LOG has all that it said."""
    watched, width = sys.stdout.isatty(), shutil.get_terminal_size().columns - 1
    last: deque[str] = deque(maxlen=SHOWN_AT_FAILURE)
    command = [*PIP, "install", *arguments]
    with (
        LOG.open("a", encoding="utf-8") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as pip,
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            log.write(line)
            last.append(line)
            if watched and (now := step(line)):
                print(f"\r\033[K{f'  {now}'[:width]}", end="", flush=True)
    if watched:
        print("\r\033[K", end="", flush=True)
    if pip.returncode:
        print("".join(last), end="", file=sys.stderr)
        print(f"pip failed. All that it said is in {LOG}.", file=sys.stderr)
    return pip.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # pip has heard it too
        sys.exit(128 + signal.SIGINT)
