"""What keeps a version from being released, and how a tag becomes a release."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import release  # noqa: E402

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())


def test_the_changelog_has_this_version():
    """The newest entry is that of pyproject.toml's version."""
    release.check_changelog((ROOT / "CHANGELOG.md").read_text(), release.version_of(ROOT), dated=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Changelog\n", "the newest entry of CHANGELOG.md is '', not one of 0.2.0"),
        ("## 0.1.0 (2026-12-01)\n\nIt was.\n", "'0.1.0 (2026-12-01)', not one of 0.2.0"),
        ("## 0.2.0\n\nIt is.\n", "'0.2.0', not one of 0.2.0"),
        ("## 0.2.0 (2026-12-01)\n\n## 0.1.0 (2026-11-01)\n\nIt was.\n", "says nothing of 0.2.0"),
        ("## 0.2.0 (unreleased)\n\nIt is.\n", "says 'unreleased' of 0.2.0; what is tagged has its day"),
    ],
)
def test_a_changelog_that_does_not_fit_stops_a_release(text, said):
    """An entry that is missing, older, without words or without its day: the error says which."""
    with pytest.raises(release.ReleaseError, match=re.escape(said)):
        release.check_changelog(text, "0.2.0", dated=True)


def test_a_day_is_asked_of_what_is_tagged_alone():
    """One builds and tries before the day is known."""
    text = "## 0.2.0 (unreleased)\n\nIt is.\n"

    release.check_changelog(text, "0.2.0", dated=False)
    release.check_changelog(text.replace("unreleased", "2026-12-01"), "0.2.0", dated=True)


def test_an_install_that_is_not_light_stops_a_release():
    """A client's environment has neither numpy nor a runtime."""
    release.check_packages({"grpcio", "rich"}, release.HEAVY)
    with pytest.raises(release.ReleaseError, match="the install brings numpy, torch"):
        release.check_packages({"grpcio", "torch", "numpy"}, release.HEAVY)


def test_a_tree_with_changes_is_not_tagged(tmp_path, monkeypatch):
    """What is tagged is what was tried: the commit is the whole of the tree."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "all"], check=True)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "ENVIRONMENTS", tmp_path)
    monkeypatch.setenv("GIT_COMMITTER_NAME", "x")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "x@x")
    (tmp_path / "new").touch()
    with pytest.raises(release.ReleaseError, match="not committed"):
        release.tag("0.2.0")
    (tmp_path / "new").unlink()
    release.tag("0.2.0")

    assert "v0.2.0\n" == subprocess.run([*git, "tag"], check=True, capture_output=True, text=True).stdout


def test_publishing_keeps_no_secret():
    """A tag alone publishes, what was tried is what is uploaded, and PyPI trusts the workflow: there is no token."""
    jobs = WORKFLOW["jobs"]
    (upload,) = [step for step in jobs["publish"]["steps"] if "pypi-publish" in step.get("uses", "")]

    # YAML reads the key `on` as a truth.
    assert {"push": {"tags": ["v*"]}} == WORKFLOW[True]
    assert {"contents": "read"} == WORKFLOW["permissions"]
    assert ({"id-token": "write"}, "pypi", "build") == tuple(
        jobs["publish"][key] for key in ("permissions", "environment", "needs")
    )
    assert "permissions" not in jobs["build"]
    assert "make release ARGS=--dated" in [step.get("run") for step in jobs["build"]["steps"]]
    assert "with" not in upload
    assert "secrets." not in (ROOT / ".github/workflows/publish.yml").read_text()


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.name)
def test_actions_of_others_are_named_by_their_commit(path):
    """A tag can be moved to other code. Which version it was stands behind it."""
    used = re.findall(r"^ *- uses: (.*)$", path.read_text(), re.MULTILINE)

    assert used
    assert [] == [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)]
