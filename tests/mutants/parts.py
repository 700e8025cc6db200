"""What is mutated, and the tests that are asked: the one place that names folders of the product."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
# Folders of packages, in a checkout.
PACKAGES = ("proto", "client", "server", "export")
# Each part gives equally many mutants, and each file of a part too, as far as it has any.
FOLDERS = {
    name: ROOT / "server/weft_server" / name
    for name in (
        "rpc",
        "auth",
        "admission",
        "transport",
        "requests",
        "models",
        "engine",
        "sampling",
        "logits_processors",
        "loading",
        "lifecycle",
        "bundle",
    )
} | {"client": ROOT / "client/weft", "verification": ROOT / "export/weft_export/verification"}
# Tests that start servers are not asked: a law should have a test that is nearer.
TESTS = ("tests/client/test_*.py", "tests/server/test_*.py", "tests/export/test_*.py", "tests/contract/test_*.py")
# What they share. It is imported by its name alone.
HELPERS = ("tests/*.py", "tests/export/*.py")
