"""The unit for systemd fits the server that it starts."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft_server.config import ServerConfig
from weft_server.process.exit_codes import ENDINGS, ExitCode
from weft_server.process.shutdown import MARGIN_S

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd/weft.service"


def test_a_host_gives_the_time_to_drain(monkeypatch):
    """Systemd waits longer than the server drains; what the unit sets are settings, and the rest are defaults."""
    for name, value in re.findall(r"^Environment=(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        monkeypatch.setenv(name, value)
    config = ServerConfig()
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)

    assert Path("/var/lib/weft/models") == config.repository
    assert "json" == config.log_format
    assert int(stop_s) > config.drain_delay_s + config.drain_timeout_s + MARGIN_S


def test_the_page_has_the_table_of_exit_codes():
    """Row by row, in order; and systemd leaves alone what no restart mends."""
    rows = [
        f"| {'a signal' if each.code is None else int(each.code)} | {each.when} | {each.systemd} |" for each in ENDINGS
    ]
    page = (DEPLOY / "README.md").read_text()

    assert "\n".join(["| exit code | when | systemd |", "|---|---|---|", *rows, ""]) in page
    assert [str(int(ExitCode.USAGE))] == re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT.read_text(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_knows_every_line(tmp_path):
    """`systemd-analyze verify` has nothing to say: no unknown key, no value that it would pass over."""
    unit = tmp_path / "weft.service"
    unit.write_text(UNIT.read_text().replace("/opt/weft/bin/weft serve", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
