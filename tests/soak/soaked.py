"""The server of a soak: what it says of each call that ended, and what it holds of the machine."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tiny_models import NAMES as TINY

from process import ServerProcess

MODELS = ("commands", "digits", "en-es", "pydocs", "scenes", "scenes-answers", "tags", "topics")
# This one has two versions, and is swapped.
SWAPPED = "en-es"
_TICKS = os.sysconf("SC_CLK_TCK")


def make_repository(source, folder):
    """A repository of links to the demo models, with one of them twice, and of tiny ones for other tasks."""
    for model in MODELS:
        (folder / model).mkdir()
        for version in "12" if model == SWAPPED else "1":
            (folder / model / version).symlink_to((source / model / "1").resolve())
    script = Path(__file__).parent / "tiny_models.py"
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, str(script), made], check=True)
        for model in TINY:
            shutil.copytree(Path(made) / model, folder / model)
    return folder


def cpu_s(pid):
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Soaked(ServerProcess):
    """A server that tells of each call in its log. The counters of a model that is swapped away are forgotten.

    `ended` counts the calls by (request id, model, status). The load's request ids are the names of faults.
    """

    def __init__(self, repository, leak_bytes=0):
        """Start it. One with `leak_bytes` keeps as many of each call."""
        self.ended, self.complaints = Counter(), []
        if leak_bytes:
            self.program = (str(Path(__file__).parent / "leaking_server.py"), str(leak_bytes))
        settings = {"access_log": "all", "api_port": 0, "admin": True, "admin_port": 0, "prefix_cache_mb": 8}
        super().__init__(repository, log_level="debug", **settings)

    def hear(self, event):
        """Count a call, and keep no other event of a soak but complaints."""
        if event["event"] == "call":
            self.ended[event["request_id"], event["model"], event["code"]] += 1
            return
        if event.get("level") not in {"debug", "info"}:
            self.complaints.append(event)
        super().hear(event)

    def num_fds(self):
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def num_threads(self):
        """Threads."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def counted(self):
        """weft_requests_total of the models that are not swapped: (model, status) -> calls."""
        found = Counter()
        for (name, labels), value in self.metrics().items():
            of = dict(labels)
            if name == "weft_requests_total" and value and of["model"] not in {SWAPPED, ""}:
                found[of["model"], of["code"]] += int(value)
        return found
