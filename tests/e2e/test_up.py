"""`weft up`: from a checkpoint to answers in one command, and from the hub."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from tiny import save_tiny

import weft

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

WEFT = [sys.executable, "-m", "weft_command", "up"]
# What a hub has of a model. The reader of checkpoints wants the first six.
HUB = {"config.json": b"{}", "model.safetensors": b"none", "tokenizer.json": b"{}"}
HUB |= {"1_Pooling/config.json": b"{}"}
HUB |= {"colbert_linear.pt": b"", "sparse_linear.pt": b""}
HUB |= {"1_Pooling/deep/config.json": b"{}", "1_Pooling/colbert_linear.pt": b"", "optimizer.pt": b""}
HUB |= {"modeling.py": b"1 / 0", "pytorch_model.bin": b"", "onnx/config.json": b"{}"}


@contextmanager
def up(checkpoint, keep):
    """Start `weft up`; its lines until it is ready, and the process."""
    command = [*WEFT, str(checkpoint), "--keep", str(keep), "--no-explain"]
    command += ["--port", "0", "--http-port", "0", "--api-port", "0", "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if '"event": "ready"' in line:
                break
        try:
            yield lines, process
        finally:
            process.kill()


def test_a_checkpoint_is_exported_once_and_served(tmp_path):
    """The first start exports and serves; the second only serves; a signal ends either as it ends a server.

    Both show the console.
    """
    checkpoint = save_tiny("tiny-text", tmp_path / "My Topics!")
    for exports in (True, False):
        with up(checkpoint, tmp_path / "kept") as (lines, process):
            assert exports == any("exporting classifier.onnx" in line for line in lines)
            listening = next(json.loads(line) for line in lines if '"listening"' in line)
            ready = next(json.loads(line) for line in lines if '"event": "ready"' in line)
            assert ready["console"].removeprefix("http://localhost:").rstrip("/") == listening["api"].rpartition(":")[2]
            with urlopen(ready["console"], timeout=30) as console:
                assert b"console/main.js" in console.read()
            with weft.Client(listening["grpc"], timeout=30) as client:
                assert ["my-topics"] == [model.name for model in client.list_models()]
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(60)


class Hub(http.server.BaseHTTPRequestHandler):
    """The little of the hub's HTTP API that a download of one model needs."""

    asked: list[str] = []  # noqa: RUF012 - one list for all requests, which a test empties

    def do_GET(self):
        """Answer for the model org/tiny and its files."""
        path = self.path.partition("?")[0]
        self.asked.append(path)
        sha, name = "a" * 40, path.rpartition(f"/resolve/{'a' * 40}/")[2]
        siblings = [{"rfilename": each} for each in HUB]
        if "/tree/" in path:
            files = [{"type": "file", "path": each, "size": len(body), "oid": "b" * 40} for each, body in HUB.items()]
            self.say(json.dumps(files).encode())
        elif path.startswith("/api/models/org/tiny"):
            self.say(json.dumps({"id": "org/tiny", "sha": sha, "siblings": siblings}).encode())
        elif name in HUB:
            self.say(HUB[name], {"X-Repo-Commit": sha, "ETag": f'"{"b" * 39}{len(name) % 10}"'})
        else:
            self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 - as http.server wants it

    def say(self, body, headers=()):
        """Send a body with its headers."""
        self.send_response(200)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


def up_from(endpoint, home, name):
    """Run `weft up ORG/NAME` against a hub; (exit code, the last line)."""
    # Other tests say that there is no hub, so that transformers does not look for one.
    online = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment = {**online, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [*WEFT, name, "--keep", str(home / "kept")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=home)
    return done.returncode, done.stderr.splitlines()[-1]


def test_a_model_of_the_hub_is_downloaded_without_code(tmp_path):
    """Weights, sizes, tokenizers and modules are taken; code, pickles and folders for others are not asked for.

    Of pickles, the two of a BGE-M3 are.
    """
    Hub.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        code, told = up_from(f"http://127.0.0.1:{hub.server_port}", tmp_path, "org/tiny")
        hub.shutdown()

    assert (1, True) == (code, told.startswith("weft up: ")), told
    (snapshot,) = tmp_path.glob("hub/models--org--tiny/snapshots/*")
    taken = {str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if not path.is_dir()}
    of_m3 = {"colbert_linear.pt", "sparse_linear.pt"}
    assert {"config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json", *of_m3} == taken
    unwanted = (".py", ".bin", "optimizer.pt")
    assert [] == [path for path in Hub.asked if path.endswith(unwanted) or "onnx" in path or "deep" in path]


def test_a_model_of_the_hub_without_safetensors_is_refused_by_its_name(tmp_path, monkeypatch):
    """Who asks for a model that has pickles only reads that, and what to do."""
    monkeypatch.delitem(HUB, "model.safetensors")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        code, told = up_from(f"http://127.0.0.1:{hub.server_port}", tmp_path, "org/tiny")
        hub.shutdown()

    assert (1, True) == (code, told.startswith("weft up: org/tiny has no weights in safetensors")), told
    assert "`hf download org/tiny --local-dir tiny` fetches it into the folder tiny: give that" in told


def test_without_a_network_a_hub_name_is_refused_in_one_line(tmp_path):
    """Who mistyped a path, or has no network, reads one sentence that says so."""
    code, told = up_from("http://127.0.0.1:9", tmp_path, "org/tiny")

    expected = "weft up: org/tiny is no folder here, and it cannot be downloaded: the hub cannot be reached."
    assert (1, True) == (code, told.startswith(expected)), told
    assert Path(tmp_path / "kept").exists() is False
