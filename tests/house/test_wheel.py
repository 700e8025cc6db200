"""The distribution holds our packages and asks for no more than each of them needs."""

import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "weft": "client",
    "weft_bench": "client",
    "weft_command": "client",
    "weft_export": "export",
    "weft_proto": "proto",
    "weft_recipes": "export",
    "weft_server": "server",
}
BASE_INSTALL = {"grpcio", "protobuf", "googleapis-common-protos", "typer", "rich"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built by the pinned backend without a network."""
    out = tmp_path_factory.mktemp("dist")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    """The wheel's METADATA."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def extras(metadata):
    """The names of the extras."""
    return metadata.get_all("Provides-Extra")


def requirements(metadata, extra=""):
    """The distributions that an install with the extra brings: the base ones for no extra, only its own for one."""
    every = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    base = {entry.name for entry in every if entry.marker is None}
    if not extra:
        return base
    return {entry.name for entry in every if entry.marker is not None and entry.marker.evaluate({"extra": extra})}


def test_the_wheel_holds_our_packages(wheel):
    """Our top-level packages and the metadata, and nothing else."""
    tops = {name.split("/")[0] for name in wheel.namelist()}
    dist_infos = {top for top in tops if top.endswith(".dist-info")}

    assert set(PACKAGES) == tops - dist_infos
    assert 1 == len(dist_infos)


def test_the_wheel_holds_every_module(wheel):
    """Each Python file, stub, marker, contract and page of the source tree is in the wheel under its import path."""
    expected = {
        path.relative_to(ROOT / folder).as_posix()
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*")
        if path.suffix in {".py", ".pyi", ".proto", ".html"} or path.name == "py.typed"
    }

    assert expected <= set(wheel.namelist())
    assert {f"{package}/py.typed" for package in PACKAGES} <= expected


def test_the_wheel_is_code(wheel):
    """No checkpoint, bundle or test travels with the code, and the licence does."""
    names = wheel.namelist()

    assert not [name for name in names if name.endswith((".safetensors", ".onnx", ".data", ".png"))]
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_a_plain_install_is_light(metadata):
    """The client SDK and its command line need gRPC, protobuf and the two libraries of the command line."""
    assert BASE_INSTALL == requirements(metadata)


def test_no_server_needs_torch(metadata):
    """Neither server nor gpu brings torch or transformers."""
    for extra in ("server", "gpu"):
        assert not {"torch", "transformers", "safetensors", "onnxscript"} & requirements(metadata, extra)


def test_scikit_learn_is_for_training_alone(metadata):
    """The recipes want its data sets and figures; an exporter does without."""
    assert {"train"} == {name for name in extras(metadata) if "scikit-learn" in requirements(metadata, name)}


@pytest.mark.parametrize(("extra", "runtime"), [("server", "onnxruntime"), ("gpu", "onnxruntime-gpu")])
def test_server_and_gpu_bring_one_runtime_each(metadata, extra, runtime):
    """Both wheels hold the module `onnxruntime`, so no extra brings both, and no other extra brings either."""
    brought = {name: requirements(metadata, name) & {"onnxruntime", "onnxruntime-gpu"} for name in extras(metadata)}

    assert {runtime} == brought[extra]
    assert {"server", "gpu"} == {name for name, runtimes in brought.items() if runtimes}


def test_server_and_gpu_exclude_each_other():
    """Resolvers that know of conflicts are told of this one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert [[{"extra": "server"}, {"extra": "gpu"}]] == project["tool"]["uv"]["conflicts"]


def test_every_command_loads():
    """The `weft` script and each subcommand that a package plugs into it name something that exists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = project["entry-points"]["weft.commands"]

    assert ["weft"] == list(project["scripts"])
    assert {"bench", "plan", "serve", "doctor", "export", "export-adapter", "train", "up", "wrap"} == set(commands)
    targets = [*project["scripts"].values(), *commands.values()]
    assert all(callable(EntryPoint("", target, "").load()) for target in targets)
