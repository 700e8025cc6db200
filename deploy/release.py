"""`make release`: builds what is published into dist/, and tries it in environments that have nothing else.

With `--tag` it marks the commit, too. Nothing is uploaded: .github/workflows/publish.yml does that, for a tag.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "deploy/local"))

from demo import ServerFailedError, served  # noqa: E402 - it lies in a folder of its own

DIST, ENVIRONMENTS = ROOT / "dist", ROOT / "build/release"
# The list of parts is written by a tool, at one version, in an environment of its own.
SBOM_TOOL = "cyclonedx-bom==7.5.0"
# The base install is the client. What runs models is not in it.
HEAVY = {"numpy", "onnx", "onnxruntime", "tokenizers", "torch"}
MAX_BASE_MB = 70
# They are in every environment that `venv` makes.
TOOLS = {"pip", "setuptools", "pkg_resources"}
# The server has no torch.
NOT_SERVED = {"torch", "transformers", "onnxscript"}


class ReleaseError(Exception):
    """What keeps this from being released."""


def version_of(root: Path) -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def check_changelog(text: str, version: str, *, dated: bool) -> None:
    """Refuse a changelog whose newest entry is not the version's, is empty, or has no date where it must have one."""
    newest, *_ = re.split(r"^## ", text, flags=re.MULTILINE)[1:] or [""]
    title, _, body = newest.partition("\n")
    match = re.fullmatch(rf"{re.escape(version)} \((.+)\)", title)
    if match is None:
        raise ReleaseError(f"the newest entry of CHANGELOG.md is {title!r}, not one of {version}")
    if not body.strip():
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}")
    if dated and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", match[1]):
        raise ReleaseError(f"CHANGELOG.md says {match[1]!r} of {version}; what is tagged has its day: 2026-12-31")


def check_packages(names: set[str], unwanted: set[str]) -> None:
    """Refuse an environment that has what it must not have."""
    if found := sorted(names & unwanted):
        raise ReleaseError(f"the install brings {', '.join(found)}")


def build(version: str) -> Path:
    """Write the source distribution, and the wheel out of it: so the first is known to be whole. Return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(DIST), cwd=ROOT)
    source = DIST / f"weft_serving-{version}.tar.gz"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(DIST)]
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(source))
    (wheel,) = DIST.glob("*.whl")
    return wheel


def install(name: str, *packages: str) -> Path:
    """Make a clean environment with these packages, at the pinned versions. Return its Python."""
    folder = ENVIRONMENTS / name
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    python = folder / "bin/python"
    _run(str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), *packages)
    return python


def try_client(python: Path) -> None:
    """The base install imports, helps, and is light."""
    check_packages(_installed(python), HEAVY)
    site = Path(_run(str(python), "-c", "import weft; print(weft.__path__[0])").strip()).parent
    files = [file for file in site.rglob("*") if file.is_file() and file.relative_to(site).parts[0] not in TOOLS]
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    if size_mb > MAX_BASE_MB:
        raise ReleaseError(f"the base install has {size_mb:.0f} MB; {MAX_BASE_MB} are its limit")
    if "translate" not in _run(_weft(python), "--help"):
        raise ReleaseError("`weft --help` does not name `translate`")
    print(f"base install: {size_mb:.0f} MB, `import weft` and `weft --help` work")


def try_server(python: Path, client: Path, repository: Path) -> None:
    """The server starts from its own install, and answers the other one's client."""
    check_packages(_installed(python), NOT_SERVED)
    with served(repository, ENVIRONMENTS / "server.log", python=str(python)) as target:
        words = [
            "classify",
            "--text",
            "the team won the match in the last minute",
            "--model",
            "topics",
            "--target",
            target,
        ]
        answer = json.loads(_run(_weft(client), *words, "--json"))
    print(f"server: topics answers {json.dumps(answer)[:100]}")


def write_sbom(python: Path, path: Path) -> None:
    """Write which packages an environment has, as CycloneDX."""
    tool = install("sbom", SBOM_TOOL)
    project = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(path)]
    _run(str(tool.with_name("cyclonedx-py")), "environment", *project, str(python))
    parts = json.loads(path.read_text())["components"]
    if missing := {"grpcio", "onnxruntime", "numpy"} - {part["name"] for part in parts}:
        raise ReleaseError(f"{path.name} lacks {', '.join(sorted(missing))}")
    print(f"parts: {len(parts)}, in {path.name}")


def tag(version: str) -> None:
    """Mark the commit, which must be the whole of the tree."""
    if _run("git", "-C", str(ROOT), "status", "--porcelain"):
        raise ReleaseError("the tree has changes that are not committed")
    _run("git", "-C", str(ROOT), "tag", "--annotate", f"v{version}", "--message", f"Weft {version}")
    print(f"tagged v{version}; `git push origin v{version}` publishes it")


def main(arguments: Sequence[str]) -> int:
    """Build, try, list the parts, and tag where that is asked for."""
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("--dated", action="store_true", help="the changelog's entry must have its day")
    parser.add_argument("--tag", action="store_true", help="the same, and mark the commit once all is well")
    parser.add_argument("--repository", type=Path, default=ROOT / "build/models", help="bundles, `topics` among them")
    options = parser.parse_args(arguments)
    version = version_of(ROOT)
    try:
        check_changelog((ROOT / "CHANGELOG.md").read_text(), version, dated=options.dated or options.tag)
        wheel = build(version)
        client, server = install("client", str(wheel)), install("server", f"{wheel}[server]")
        try_client(client)
        try_server(server, client, options.repository)
        write_sbom(server, DIST / f"weft_serving-{version}.cdx.json")
        if options.tag:
            tag(version)
    except (ReleaseError, ServerFailedError, subprocess.CalledProcessError) as error:
        print(f"not released: {error}", file=sys.stderr)
        return 1
    for path in sorted(DIST.iterdir()):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _installed(python: Path) -> set[str]:
    found = json.loads(_run(str(python), "-m", "pip", "list", "--format", "json"))
    return {re.sub(r"[-_.]+", "-", each["name"]).lower() for each in found}


def _weft(python: Path) -> str:
    return str(python.with_name("weft"))


def _run(*command: str, cwd: Path | None = None) -> str:
    # What it warns of goes to the terminal. Elsewhere than in the checkout, which Python would import from.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd or ENVIRONMENTS).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
