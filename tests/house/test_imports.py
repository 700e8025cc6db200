"""The import walls: they stand, they fire, and what each package loads is what it declares."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = {
    "weft": "client",
    "weft_bench": "client",
    "weft_server": "server",
    "weft_export": "export",
    "weft_recipes": "export",
    "weft_proto": "proto",
}

# A line planted into a module, and the import that the walls must then report.
PLANTS = [
    ("weft/exceptions.py", "import weft_server", "weft.exceptions -> weft_server"),
    ("weft/exceptions.py", "import numpy", "weft.exceptions -> numpy"),
    ("weft/exceptions.py", "import weft_bench.report", "weft.exceptions -> weft_bench.report"),
    ("weft_bench/report.py", "import weft_server", "weft_bench.report -> weft_server"),
    ("weft_bench/report.py", "import numpy", "weft_bench.report -> numpy"),
    (
        "weft_export/checkpoints/files.py",
        "import weft_server.config",
        "weft_export.checkpoints.files -> weft_server.config",
    ),
    ("weft_export/checkpoints/files.py", "import grpc", "weft_export.checkpoints.files -> grpc"),
    (
        "weft_export/checkpoints/files.py",
        "import onnxruntime",
        "weft_export.checkpoints.files -> onnxruntime",
    ),
    ("weft_export/verification/parity.py", "import onnxruntime", "weft_export.verification.parity -> onnxruntime"),
    ("weft_export/layers/run.py", "import weft_export.graphs", "weft_export.layers.run -> weft_export.graphs"),
    ("weft_export/families/vit.py", "import weft_recipes", "weft_export.families.vit -> weft_recipes"),
    ("weft_recipes/tags.py", "import weft_recipes.topics", "weft_recipes.tags -> weft_recipes.topics"),
    ("weft_recipes/shared/card.py", "import weft_recipes.tags", "weft_recipes.shared.card -> weft_recipes.tags"),
    ("weft_recipes/texts/names.py", "import onnxruntime", "weft_recipes.texts.names -> onnxruntime"),
    ("weft_recipes/shared/card.py", "import weft", "weft_recipes.shared.card -> weft"),
    ("weft_recipes/shared/card.py", "import grpc", "weft_recipes.shared.card -> grpc"),
    ("weft_proto/__init__.py", "import weft_export", "weft_proto -> weft_export"),
    ("weft/exceptions.py", "import weft_proto.chat.names", "weft_proto.chat.names -> jinja2"),
    ("weft_export/checkpoints/files.py", "import jinja2", "weft_export.checkpoints.files -> jinja2"),
    ("weft_proto/bundle_rules.py", "import numpy", "weft_proto.bundle_rules -> numpy"),
    ("weft_server/config.py", "def late():\n    import torch", "weft_server.config -> torch"),
    ("weft_server/config.py", "import grpc", "weft_server.config -> grpc"),
    (
        "weft_server/requests/generate.py",
        "from weft_proto.v1 import model_pb2_grpc",
        "weft_server.requests.generate -> weft_proto.v1.model_pb2_grpc",
    ),
    ("weft_server/engine/engine.py", "import onnxruntime", "weft_server.engine.engine -> onnxruntime"),
    (
        "weft_server/sequence.py",
        "import weft_server.engine.engine",
        "weft_server.sequence -> weft_server.engine.engine",
    ),
]

# What a module may need, and what an import of it must then not load.
LOADS = [
    ("weft", {"numpy", "torch", "onnx", "onnxruntime", "PIL", "tokenizers", "matplotlib", "pydantic", "jinja2"}),
    ("weft.cli", {"torch", "onnxruntime", "matplotlib", "jinja2"}),
    ("weft_server.app", {"torch", "transformers", "weft", "weft_export", "matplotlib"}),
]


def lint_imports(folder):
    """Run import-linter by the project's contracts; packages in `folder` go before the installed ones."""
    linter = Path(sys.executable).with_name("lint-imports")
    command = [linter, "--no-logo", "--no-cache", "--config", ROOT / "pyproject.toml"]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)


def test_the_walls_stand():
    """The committed source keeps every contract."""
    answer = lint_imports(ROOT)

    assert 0 == answer.returncode, answer.stdout


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """What import-linter says of a copy of the source into which every plant was put."""
    folder = tmp_path_factory.mktemp("planted")
    for package, parent in FOLDERS.items():
        shutil.copytree(ROOT / parent / package, folder / package)
    for module, line, _ in PLANTS:
        with (folder / module).open("a") as source:
            source.write(f"\n{line}\n")
    answer = lint_imports(folder)

    assert 1 == answer.returncode, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("forbidden", [plant[2] for plant in PLANTS])
def test_the_walls_fire(reported, forbidden):
    """A forbidden import, early or late, is reported with the module that does it."""
    assert f"{forbidden} (l." in reported


@pytest.mark.parametrize(("module", "unwanted"), LOADS, ids=[module for module, _ in LOADS])
def test_an_import_stays_light(module, unwanted):
    """Importing the module in a fresh interpreter loads none of what it has to do without."""
    script = f"import sys, {module}; print(*sorted({unwanted!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert "" == answer.stdout.strip()


def test_onnx_runtime_reports_to_nobody(tmp_path):
    """The server loads ONNX Runtime with its telemetry off: no device id and no spool in the home folder."""
    private = {"CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}  # the first two would switch it off by themselves
    environment = {name: value for name, value in os.environ.items() if name not in private} | {"HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import weft_server.runtime.session"], check=True, env=environment)

    assert [] == list(tmp_path.iterdir())


def declared(*extras):
    """The distributions of the base install and of the extras, self-references resolved."""
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in PROJECT["optional-dependencies"][extra])]
    for entry in map(Requirement, texts):
        if entry.name == PROJECT["name"]:
            yield from declared(*entry.extras)
        else:
            yield canonicalize_name(entry.name)


def third_party(package, room=""):
    """Top-level names of what the package imports, early or late, that are neither ours nor the standard library's."""
    imported = set()
    for path in (ROOT / FOLDERS[package] / package / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(node.module.split(".")[0])
    return imported - set(FOLDERS) - set(sys.stdlib_module_names)


def test_the_stubs_of_every_service_are_behind_the_wall():
    """A service's stubs import gRPC, so few rooms may import them: each file is named in the contract."""
    stubs = {f"weft_proto.v1.{path.stem}" for path in (ROOT / "proto/weft_proto/v1").glob("*_pb2_grpc.py")}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    protected = {module for contract in contracts for module in contract.get("protected_modules", ())}

    assert stubs == {module for module in protected if module.startswith("weft_proto.")}


def test_the_contracts_need_protobuf_and_grpc_alone():
    """Exporter, server and client all import them, and the client has nothing else. It has no chat's template.

    Nor has it a tokenizer, whose offsets exporter and server find.
    """
    assert {"google", "grpc", "jinja2", "tokenizers"} == third_party("weft_proto")
    assert {"jinja2"} == third_party("weft_proto", "chat")


@pytest.mark.parametrize(
    ("package", "extras"),
    [
        ("weft_proto", ["export"]),
        ("weft_proto", ["serve-core"]),
        ("weft", ["plot", "otel"]),  # it traces where the process has OpenTelemetry already
        ("weft_bench", ["bench"]),
        ("weft_server", ["server", "constraints", "otel"]),
        ("weft_export", ["export", "server"]),  # the parity run borrows the server's runtime
        ("weft_recipes", ["train"]),
    ],
)
def test_a_package_declares_what_it_imports(package, extras):
    """Each third-party module comes from a distribution that the package's own install names."""
    owners = packages_distributions()
    brought = set(declared(*extras))
    undeclared = {
        name for name in third_party(package) if not brought & {canonicalize_name(owner) for owner in owners[name]}
    }

    assert set() == undeclared
