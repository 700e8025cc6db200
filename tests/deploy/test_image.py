"""`make image`: what it builds on, and, where buildah is, a base that is given by its digest."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import image  # noqa: E402

DIGEST = "sha256:" + "a" * 64
needs_buildah = pytest.mark.skipif(
    shutil.which("buildah") is None or os.getuid() != 0, reason="needs root and buildah: Debian's package has it"
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
        (f"python:3.11-slim@{DIGEST}", f"docker.io/library/python:3.11-slim@{DIGEST}"),
        (f"registry.test/python@{DIGEST}", f"registry.test/python@{DIGEST}"),
    ],
)
def test_the_image_is_built_on_what_the_dockerfile_names(tmp_path, written, expected):
    """A digest that is written there is the one that `make image` builds on."""
    text = (ROOT / image.DOCKERFILE).read_text()
    (tmp_path / "Dockerfile").write_text(
        re.sub(r"^ARG PYTHON_IMAGE=.*$", f"ARG PYTHON_IMAGE={written}", text, flags=re.MULTILINE)
    )

    assert expected == image.base_of(tmp_path / "Dockerfile")


@needs_buildah
def test_a_base_may_be_given_by_its_digest(tmp_path):
    """The image of models is built on it, and is for that user; another digest is refused."""
    store = ["--root", str(tmp_path / "store"), "--runroot", str(tmp_path / "run"), "--storage-driver", "vfs"]
    (tmp_path / "context/build/models/a/1").mkdir(parents=True)
    (tmp_path / "context/build/models/a/1/bundle.json").write_text("{}")
    environment = os.environ | {"BUILDAH_ISOLATION": "chroot"}

    def buildah(*words, check=True):
        return subprocess.run(["buildah", *store, *words], env=environment, check=check, capture_output=True, text=True)

    base = buildah("from", "scratch").stdout.strip()
    buildah("commit", "--quiet", base, "localhost/busybox:1.37")
    digest = buildah("images", "--digests", "--format", "{{.Digest}}", "localhost/busybox:1.37").stdout.strip()

    def built(digest):
        dockerfile = str(ROOT / "deploy/docker/models.Dockerfile")
        given = f"BUSYBOX_IMAGE=localhost/busybox@{digest}"
        words = ["build", "--quiet", "--pull-never", "--file", dockerfile, "--build-arg", given, "--tag", "models:1"]
        return buildah(*words, str(tmp_path / "context"), check=False)

    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    assert 0 == (done := built(digest)).returncode, done.stderr
    assert (
        "10001:10001"
        == buildah("inspect", "--type", "image", "--format", "{{.OCIv1.Config.User}}", "models:1").stdout.strip()
    )
    assert 0 != built(DIGEST).returncode
