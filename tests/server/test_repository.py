"""A repository is `<model>/<version>/`; whatever is not is reported, never guessed at."""

from pathlib import Path

import pytest

from weft_server.repository import Candidate, RepositoryError, scan_repository


def test_bundles_are_listed_by_name_and_numeric_version(tmp_path):
    """Candidates come by name, then by version as a number."""
    for path in ("topics/10", "topics/9", "en-es/1", "digits.v2_x/3"):
        (tmp_path / path).mkdir(parents=True)
    scan = scan_repository(tmp_path)
    names = [("digits.v2_x", 3), ("en-es", 1), ("topics", 9), ("topics", 10)]
    assert [Candidate(name, version, tmp_path / name / str(version)) for name, version in names] == scan.candidates
    assert [] == scan.oddities


@pytest.mark.parametrize("odd", ["Upper/1", "-dash/1", "topics/0", "topics/01", "topics/v1", "topics/-1", "empty"])
def test_odd_directories_are_reported_not_loaded(tmp_path, odd):
    """A directory whose name breaks the rules, or that has no version, is told about in one sentence."""
    (tmp_path / odd).mkdir(parents=True)
    scan = scan_repository(tmp_path)
    assert [] == scan.candidates
    assert len(scan.oddities) == 1
    assert str(tmp_path / odd.split("/")[0]) in scan.oddities[0]


def test_odd_files_are_reported(tmp_path):
    """A file where a model or version should be is told about."""
    (tmp_path / "README").touch()
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "1").touch()
    assert len(scan_repository(tmp_path).oddities) == 2


def test_dot_names_are_left_alone(tmp_path):
    """Names that start with a dot are neither candidates nor odd."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "topics" / ".tmp").mkdir(parents=True)
    (tmp_path / "topics" / "1").mkdir()
    assert ([Candidate("topics", 1, tmp_path / "topics" / "1")], []) == scan_repository(tmp_path)


def test_a_repository_that_is_not_there_is_an_error(tmp_path):
    """A missing repository, or a file in its place, is an error that names it."""
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        with pytest.raises(RepositoryError, match=name):
            scan_repository(tmp_path / name)


def test_a_model_that_cannot_be_listed_is_odd_and_no_more(tmp_path, monkeypatch):
    """The models beside it are found."""
    (tmp_path / "good" / "1").mkdir(parents=True)
    (tmp_path / "locked" / "1").mkdir(parents=True)
    listed = Path.iterdir

    def iterdir(path):
        if path.name == "locked":  # root may list anything, so permissions alone prove nothing here
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    scan = scan_repository(tmp_path)

    assert ["good"] == [candidate.name for candidate in scan.candidates]
    assert [f"{tmp_path / 'locked'}: Permission denied"] == scan.oddities
