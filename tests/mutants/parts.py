"""What is mutated, and the tests that may be asked: the one place that names folders of the product."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
# Folders of packages, in a checkout.
PACKAGES = ("proto", "client", "server", "export")
# Each part gives equally many mutants, and each file of a part too, as far as it has any.
FOLDERS = {
    name: ROOT / "server/weft_server" / name
    for name in (
        "rpc",
        "api",
        "openai_api",
        "calls",
        "auth",
        "admission",
        "transport",
        "requests",
        "models",
        "engine",
        "sampling",
        "logits_processors",
        "structured_output",
        "loading",
        "lifecycle",
        "bundle",
    )
} | {"client": ROOT / "client/weft", "verification": ROOT / "export/weft_export/verification"}


def tests_of(path: str) -> list[str]:
    """The files of tests that may be asked of a file of the product. Paths are relative, as draw.Mutant has them.

    Those that start servers are not: a law should have a test that is nearer.
    """
    folders = [ROOT / "tests" / name for name in (path.partition("/")[0], "contract")]
    return [str(test.relative_to(ROOT)) for folder in folders for test in sorted(folder.glob("test_*.py"))]
