"""What `import weft` gives, and what it does not drag along."""

import json
import re
import subprocess
import sys
import types

import pytest

import weft
from weft._commands.table import COMMANDS
from weft._verbs.table import VERBS

HEAVY = {"numpy", "torch", "onnxruntime", "onnx", "matplotlib", "PIL", "typer", "rich", "pydantic", "tokenizers"}


def loaded_by(code):
    """The top-level modules that a fresh interpreter holds after running the code."""
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(answer.stdout.splitlines()[-1]))


def test_all_names_what_is_exported():
    """`__all__` lists every public name of the package, and each of them is there."""
    public = {
        name
        for name, value in vars(weft).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert public | {"__version__"} == set(weft.__all__)


def test_every_public_name_is_documented():
    """Each exported class has a docstring of its own."""
    classes = [getattr(weft, name) for name in weft.__all__ if isinstance(getattr(weft, name), type)]

    assert [] == [
        each.__name__
        for each in classes
        if "__doc__" not in vars(each) or (each.__doc__ or "").startswith(f"{each.__name__}(")
    ]


def test_a_class_says_where_it_is_imported_from():
    """What Python prints of a public class names no private module: it is `weft.Client`, wherever it stands."""
    classes = [getattr(weft, name) for name in weft.__all__ if isinstance(getattr(weft, name), type)]

    assert "<class 'weft.Client'>" == repr(weft.Client)
    assert set() == {each.__module__ for each in classes} - {"weft", "weft.exceptions"}


def test_a_verb_stands_everywhere():
    """Each is a method of the client, a method for many inputs unless it is about tokens, and a subcommand."""
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", verb.name).lower() for verb in VERBS]
    of_many = [f"{name}_many" for name in names if name not in {"tokenize", "detokenize"}]

    assert [] == [name for name in names + of_many if not hasattr(weft.Client, name)]
    assert set() == set(names) - {command.__name__ for command in COMMANDS}


def test_importing_the_sdk_is_light():
    """`import weft` loads gRPC and protobuf, and neither arrays nor models nor the command line's needs."""
    assert set() == HEAVY & loaded_by("import weft")


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["translate", "a", "-t", "127.0.0.1:1", "--timeout", "0.1"]]
)
def test_the_command_loads_no_other_package(argv):
    """The client's own subcommands, and the list of all, import neither server nor exporter nor what those need."""
    loaded = loaded_by(f"from weft_command.running import run\nrun({argv!r})")

    assert set() == {"weft_server", "weft_export", "numpy", "torch", "onnxruntime", "matplotlib", "PIL"} & loaded


def test_every_error_is_under_the_root():
    """Whoever catches weft.Error catches them all."""
    kinds = [value for value in vars(weft).values() if isinstance(value, type) and issubclass(value, Exception)]

    assert kinds
    assert all(issubclass(kind, weft.Error) for kind in kinds)
