"""Exports tiny models for tasks that have no demo, into a folder. A process of its own keeps torch out of a soak's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "export"))

NAMES = ("tiny-embed", "tiny-match", "tiny-extract", "tiny-masks")


def main():
    """Export each to FOLDER/NAME/1."""
    from tiny import export_tiny

    folder = Path(sys.argv[1])
    for name in NAMES:
        export_tiny(folder / "checkpoints", folder, name)


if __name__ == "__main__":
    main()
