"""The committed stubs are what the contracts generate."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACTS = Path("weft_proto/v1")


def stubs(root):
    """Name to content of the generated files below a source root."""
    return {path.name: path.read_bytes() for path in (root / CONTRACTS).iterdir() if "_pb2" in path.name}


def test_the_committed_stubs_are_fresh(tmp_path):
    """`make proto` writes byte for byte what is committed: no file more, no file less."""
    installed = ["-o", ".venv/.installed"]  # a test installs nothing, whatever is due
    subprocess.run(["make", "--no-print-directory", *installed, "proto", f"STUBS={tmp_path}"], cwd=ROOT, check=True)

    assert stubs(tmp_path) == stubs(ROOT / "proto")


def test_only_services_have_service_stubs():
    """A contract without a service has no *_pb2_grpc file, which would hold nothing but a version check."""
    expected = {
        f"{path.stem}_pb2_grpc{ending}"
        for path in (ROOT / "proto" / CONTRACTS).glob("*.proto")
        if "\nservice " in path.read_text()
        for ending in (".py", ".pyi")
    }

    assert expected == {name for name in stubs(ROOT / "proto") if "_grpc" in name}
