"""What the image leaves out: nothing that serving opens."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy/docker"))

import slim  # noqa: E402

# It refuses what is left out, imports every module of the server, and serves a request of each kind of graph.
PROBE = """
import importlib, importlib.abc, pkgutil, sys

gone = set(sys.argv[1].split(","))

class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if any(name == each or name.startswith(each + ".") for each in gone):
            raise ModuleNotFoundError(f"{name} is left out", name=name)

sys.meta_path.insert(0, Gone())
import weft_server as server
for module in pkgutil.walk_packages(server.__path__, "weft_server."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
sys.argv = ["weft serve", sys.argv[2], "--check", "--port", "0", "--http-port", "0"]
from weft_server.__main__ import app
app()
"""


def test_what_the_server_needs_is_followed():
    """What it and its extras need is there; a downloader of tokenizers is not, nor is what that alone needs."""
    needed = slim.needed("weft-serving", ["server", "constraints", "otel"])

    assert {"weft-serving", "grpcio", "numpy", "onnxruntime", "tokenizers", "llguidance", "opentelemetry-sdk"} <= needed
    assert not {"huggingface-hub", "hf-xet", "fsspec", "torch", "tqdm"} & needed
    assert {"huggingface-hub", "hf-xet", "fsspec", "tqdm"} <= slim.needed("weft-serving", ["server"], set())


def test_the_server_starts_without_what_is_left_out(demo_repository):
    """With all of it refused at the import, every module loads, and `weft serve --check` finds nothing wrong."""
    with_all = slim.needed("weft-serving", ["server", "constraints", "otel"], set())
    packages = {"huggingface-hub": "huggingface_hub", "hf-xet": "hf_xet", "pyyaml": "yaml", "httpx2": "httpx2"}
    without = with_all - slim.needed("weft-serving", ["server", "constraints", "otel"])
    folders = {folder.replace("/", ".") for folder in slim.FOLDERS if "*" not in folder}
    gone = {packages.get(name, name.replace("-", "_")) for name in without} | folders
    command = [sys.executable, "-c", PROBE, ",".join(sorted(gone)), str(demo_repository)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert "huggingface_hub" in gone
    assert (0, "") == (answer.returncode, answer.stderr[-2000:] if answer.returncode else "")


def test_each_folder_is_there_to_be_left_out():
    """A folder that a newer package calls otherwise would stay in the image, and the build stops."""
    site = Path(slim.importlib.metadata.distribution("numpy").locate_file(""))

    assert [] == [pattern for pattern in (*slim.FOLDERS, *slim.FILES) if not any(site.glob(pattern))]


@pytest.mark.skipif(sys.platform != "linux", reason="it reads what Linux has loaded")
def test_no_file_that_is_left_out_is_loaded(demo_repository):
    """Of a process whose sessions have run: its libraries are others."""
    probe = (
        "import sys; sys.argv = ['weft serve', sys.argv[1], '--check', '--port', '0', '--http-port', '0']\n"
        "from weft_server.__main__ import app\n"
        "try: app()\n"
        "except SystemExit: print(open('/proc/self/maps').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(demo_repository)], check=True, capture_output=True, text=True
    )
    loaded = {Path(line.split()[-1]).name for line in done.stdout.splitlines() if ".so" in line}
    site = Path(slim.importlib.metadata.distribution("numpy").locate_file(""))
    gone = {path.name for pattern in slim.FILES for path in site.glob(pattern)}

    assert any(name.startswith("onnxruntime_pybind11_state") for name in loaded)
    assert gone
    assert not gone & loaded
