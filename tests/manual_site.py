"""Builds the manual as a site, as `make docs` does, in a folder of a test's own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built(folder):
    """The folder of the site. A link or an anchor that leads nowhere, and a page without a place, end the build."""
    subprocess.run([sys.executable, ROOT / "docs/site/gather.py", folder], check=True)
    build = [Path(sys.executable).with_name("mkdocs"), "build", "--quiet", "--strict", "-f", folder / "mkdocs.yml"]
    subprocess.run(build, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return folder / "site"
