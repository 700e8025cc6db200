"""The committed stubs are what the contracts generate."""

import subprocess
from importlib import import_module
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


def test_other_languages_know_where_the_code_goes():
    """Each contract names its Go and Java package, without which their generators stop or pile all into one class."""
    contracts = sorted((ROOT / "proto" / CONTRACTS).glob("*.proto"))
    options = [import_module(f"weft_proto.v1.{path.stem}_pb2").DESCRIPTOR.GetOptions() for path in contracts]

    assert len(contracts) == len(options) > 0
    assert {("weft/v1;weftv1", "weft.v1", True)} == {
        (each.go_package, each.java_package, each.java_multiple_files) for each in options
    }
