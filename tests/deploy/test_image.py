"""`make image`: what it builds on, and, where buildah is, a base that is given by its digest."""

import json
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


class Store:
    """What buildah has in a folder of a test's own, and a context with one bundle."""

    def __init__(self, folder):
        self.folder, self.context = folder, folder / "context"
        self._words = ["buildah", "--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs"]
        (self.context / "build/models/a/1").mkdir(parents=True)
        (self.context / "build/models/a/1/bundle.json").write_text("{}")

    def __call__(self, *words, check=True):
        """Run buildah."""
        environment = os.environ | {"BUILDAH_ISOLATION": "chroot"}
        return subprocess.run([*self._words, *words], env=environment, check=check, capture_output=True, text=True)

    def base(self, busybox=None):
        """Make an image of nothing but busybox, or of nothing; return its digest."""
        container = self("from", "scratch").stdout.strip()
        if busybox:
            self("copy", "--quiet", container, busybox, "/bin/cp")
        self("commit", "--quiet", container, "localhost/busybox:1.37")
        return self("images", "--digests", "--format", "{{.Digest}}", "localhost/busybox:1.37").stdout.strip()

    def models(self, digest):
        """Build the image of models on a base of this digest."""
        dockerfile = str(ROOT / "deploy/docker/models.Dockerfile")
        given = f"BUSYBOX_IMAGE=localhost/busybox@{digest}"
        words = ["build", "--quiet", "--pull-never", "--file", dockerfile, "--build-arg", given, "--tag", "models:1"]
        return self(*words, str(self.context), check=False)


@needs_buildah
def test_a_base_may_be_given_by_its_digest(tmp_path):
    """The image of models is built on it. Another digest is refused."""
    store = Store(tmp_path)
    digest = store.base()

    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    assert 0 == (done := store.models(digest)).returncode, done.stderr
    assert 0 != store.models(DIGEST).returncode


@needs_buildah
@pytest.mark.skipif(shutil.which("busybox") is None, reason="there is no busybox: Debian's busybox-static has it")
def test_the_image_of_models_copies_them(tmp_path):
    """Its entry point, by its user, into a volume that this user may write. What it copies can be read by everybody."""
    store = Store(tmp_path)
    assert 0 == (done := store.models(store.base(shutil.which("busybox")))).returncode, done.stderr
    config = json.loads(store("inspect", "--type", "image", "models:1").stdout)["OCIv1"]["config"]
    root = Path(store("mount", store("from", "models:1").stdout.strip()).stdout.strip())
    volume = root / "repository"
    volume.mkdir()
    os.chown(volume, *map(int, config["User"].split(":")))
    subprocess.run(["chroot", "--userspec", config["User"], root, *config["Entrypoint"]], check=True)
    copied = volume / "a/1/bundle.json"

    assert ("10001:10001", "{}") == (config["User"], copied.read_text())
    assert (0o755, 10001) == (copied.stat().st_mode & 0o777, copied.stat().st_uid)
