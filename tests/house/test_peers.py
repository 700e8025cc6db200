"""What runs in another system's environment imports nothing of ours."""

import ast
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[1] / "bench" / "peers"
ADAPTERS = sorted(path.stem for path in PEERS.glob("run_*.py") if path.stem != "run_weft")


def imported(module):
    """The first names of all modules that a script imports, and what those beside it import."""
    seen, waiting = set(), [module]
    while waiting:
        tree = ast.parse((PEERS / f"{waiting.pop()}.py").read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        new = {name.partition(".")[0] for name in names} - seen
        seen |= new
        waiting += [name for name in new if (PEERS / f"{name}.py").is_file()]
    return seen


@pytest.mark.parametrize("module", ADAPTERS)
def test_an_adapter_imports_nothing_of_ours(module):
    """Its environment has no exporter and no server: the harness writes what they would make."""
    names = imported(module)
    assert "adapter" in names
    assert set() == {name for name in names if name.startswith("weft")}
