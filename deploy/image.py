"""`make image`: builds the server's image with buildah, and lets it answer: as user 10001, on a read-only root.

It needs Linux, root, buildah, and the base that the Dockerfile names. Where no registry can be reached, `--debootstrap`
makes one of Debian's packages instead. No Docker engine and no kubelet is asked: the root is the image's, its variables
and its entry point too, and `unshare` and `chroot` do what a runtime would.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "deploy/local"), str(ROOT / "deploy")]

from demo import free_ports  # noqa: E402 - it lies in a folder of its own
from release import ENVIRONMENTS, SBOM_TOOL, install  # noqa: E402 - same

DOCKERFILE = "deploy/docker/Dockerfile"
OWN_BASE = "localhost/python:3.11-slim"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
DEBIAN = "http://deb.debian.org/debian"
MAX_MB = 240
READY_S = 120
# It mounts the image and the models, both read-only, in a namespace of its own, and becomes the image's entry point.
RUN = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind "$2" "$1/models"
mount -o remount,bind,ro "$1/models"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/dev"
mknod -m 666 "$1/dev/null" c 1 3
mknod -m 666 "$1/dev/urandom" c 1 9
mount -o remount,bind,ro "$1"
root=$1 user=$3
shift 3
exec chroot --userspec="$user" "$root" env -i "$@"
"""


class ImageError(Exception):
    """What is wrong with the image, or keeps it from being built."""


def main(arguments: Sequence[str]) -> int:
    """Build, measure, run, ask."""
    parser = argparse.ArgumentParser(prog="make image")
    parser.add_argument("--base", default=base_of(ROOT / DOCKERFILE), help="the image of Python to build on")
    parser.add_argument("--debootstrap", action="store_true", help="make one of Debian's packages first")
    parser.add_argument("--volume", action="append", default=[], metavar="A:B:ro", help="what pip needs from here")
    options = parser.parse_args(arguments)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tag = f"localhost/weft:{version}"
    # Nothing here needs a network of its own.
    os.environ.setdefault("BUILDAH_ISOLATION", "chroot")
    try:
        base = make_base() if options.debootstrap else options.base
        build(tag, base, options.volume)
        with mounted(tag) as root:
            tell_size(root)
            write_sbom(root, ROOT / f"dist/image-{version}.cdx.json")
            run(root, config_of(tag))
    except (ImageError, subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f"no image: {error}", file=sys.stderr)
        return 1
    return 0


def base_of(dockerfile: Path) -> str:
    """Return what a Dockerfile builds on if nothing else is given, with its digest if it has one."""
    (name,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", dockerfile.read_text(), re.MULTILINE)
    # buildah does not guess whose a short name is.
    return name if "/" in name else f"docker.io/library/{name}"


def make_base() -> str:
    """Make an image of Debian with Python out of its packages, once."""
    if not _run("buildah", "images", "--quiet", "--filter", f"reference={OWN_BASE}"):
        with tempfile.TemporaryDirectory() as folder:
            _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", folder, DEBIAN)
            # As in the official image: `python`, and a pip that installs.
            Path(folder, "usr/local/bin/python").symlink_to("/usr/bin/python3")
            Path(folder, "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
            container = _run("buildah", "from", "scratch")
            _run("buildah", "copy", "--quiet", container, folder, "/")
            _run("buildah", "config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
            _run("buildah", "commit", "--quiet", container, OWN_BASE)
            _run("buildah", "rm", container)
    return OWN_BASE


def build(tag: str, base: str, volumes: Sequence[str]) -> None:
    """Build the Dockerfile as it is."""
    files = ["--file", DOCKERFILE, "--ignorefile", f"{DOCKERFILE}.dockerignore"]
    mounts = [part for volume in volumes for part in ("--volume", volume)]
    _run("buildah", "build", "--quiet", *files, *mounts, "--build-arg", f"PYTHON_IMAGE={base}", "--tag", tag, str(ROOT))


@contextmanager
def mounted(tag: str) -> Iterator[Path]:
    """Give the root of a container of an image."""
    container = _run("buildah", "from", tag)
    try:
        yield Path(_run("buildah", "mount", container))
    finally:
        _run("buildah", "rm", container)


def tell_size(root: Path) -> None:
    """Say how large the environment is, and refuse one that is too large."""
    size_mb = int(_run("du", "--summarize", "--block-size=1000000", str(root / "opt/weft")).split()[0])
    if size_mb > MAX_MB:
        raise ImageError(f"the environment has {size_mb} MB; {MAX_MB} are its limit")
    print(f"built: the environment has {size_mb} MB")


def write_sbom(root: Path, path: Path) -> None:
    """Write which Python packages are in the image, as CycloneDX. Those of the system are its base's."""
    (site,) = root.glob("opt/weft/lib/python3.*/site-packages")
    parts = [f"{each.metadata['Name']}=={each.version}" for each in distributions(path=[str(site)])]
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(exist_ok=True)
    listed = ENVIRONMENTS / "image.txt"
    listed.write_text("\n".join(sorted(parts)) + "\n")
    tool = install("sbom", SBOM_TOOL).with_name("cyclonedx-py")
    _run(str(tool), "requirements", str(listed), "--output-file", str(path))
    print(f"parts: {len(parts)}, in {path.relative_to(ROOT)}")


def config_of(tag: str) -> dict[str, Any]:
    """Return what the image says of itself: Env, Entrypoint, User."""
    config: dict[str, Any] = json.loads(_run("buildah", "inspect", "--type", "image", tag))["OCIv1"]["config"]
    return config


def run(root: Path, config: Mapping[str, Any]) -> None:
    """Start the image's entry point, look at its process, and ask it."""
    port, http_port = free_ports(2)
    own = ["WEFT_HOST=127.0.0.1", f"WEFT_PORT={port}", f"WEFT_HTTP_PORT={http_port}", "WEFT_DRAIN_DELAY_S=0"]
    told = [str(root), str(ROOT / "build/models"), str(config["User"]), *config["Env"], *own, *config["Entrypoint"]]
    command = ["unshare", "--mount", "bash", "-c", RUN, "run", *told]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait(process, http_port)
        status = Path(f"/proc/{process.pid}/status").read_text()
        mounts = [line.split() for line in Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()]
        uid = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
        writable = [each[4] for each in mounts if each[4] in {"/", "/models"} and "ro" not in each[5].split(",")]
        if uid != "10001" or writable:
            raise ImageError(f"it runs as user {uid}, and can write to {writable}")
        weft = str(Path(sys.executable).with_name("weft"))
        said = _run(weft, "translate", "the old women are not buying cheap apples", "-t", f"127.0.0.1:{port}")
        print(f"run: as user {uid}, on a read-only root. It says: {said}")
    finally:
        process.terminate()
        if process.wait(60) != 0:
            raise ImageError(f"it ended with {process.returncode}")


def _wait(process: "subprocess.Popen[bytes]", http_port: int) -> None:
    until = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise ImageError("the server did not become ready")


def _run(*command: str) -> str:
    # What it says of its work goes to the terminal.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
