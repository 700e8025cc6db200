"""A real Envoy in front of servers, with the committed file but for its paths and ports."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy/envoy"
# `make envoy` fetches one.
FETCHED = ROOT / "build/envoy/envoy/_bin/envoy"
ENVOY = os.environ.get("WEFT_ENVOY") or shutil.which("envoy") or (str(FETCHED) if FETCHED.exists() else None)
needs_envoy = pytest.mark.skipif(ENVOY is None, reason="no Envoy: say `make envoy`, or name one by WEFT_ENVOY")


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@contextmanager
def envoy(folder, targets, *, tls=False):
    """Run Envoy before servers at `host:port`; give the address of its listener."""
    subprocess.run([sys.executable, FOLDER / "descriptors.py", folder / "weft.pb"], check=True)
    text = (FOLDER / "envoy.yaml").read_text().replace("/etc/envoy", str(folder))
    if tls:
        text = re.sub(r"^( +)# (?=transport_socket:|  )", r"\1", text, flags=re.MULTILINE)
    config = yaml.safe_load(text)
    (listener,), (cluster,) = config["static_resources"]["listeners"], config["static_resources"]["clusters"]
    port = free_port()
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    addresses = [{"address": "127.0.0.1", "port_value": int(target.split(":")[-1])} for target in targets]
    cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
        {"endpoint": {"address": {"socket_address": address}}} for address in addresses
    ]
    (folder / "envoy.json").write_text(json.dumps(config))
    quiet = ["--disable-hot-restart", "--log-level", "warning", "--concurrency", "1"]
    with subprocess.Popen([ENVOY, *quiet, "--config-path", folder / "envoy.json"]) as process:
        try:
            wait_for_listener(process, port)
            yield f"localhost:{port}"
        finally:
            process.terminate()


def wait_for_listener(process, port):
    """Envoy listens once it has checked its servers' health."""
    deadline = time.monotonic() + 60
    while not listens(port):
        assert process.poll() is None, "Envoy has ended"
        assert time.monotonic() < deadline, "Envoy does not listen"
        time.sleep(0.02)


def listens(port):
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
