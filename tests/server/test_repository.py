"""A repository is `<model>/<version>/`; whatever is not is reported, never guessed at."""

from pathlib import Path

import pytest

from weft_server.bundle.repository import Candidate, RepositoryError, scan_repository


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
    (tmp_path / "sound" / "1").mkdir(parents=True)
    scan = scan_repository(tmp_path)
    assert ["sound"] == [candidate.name for candidate in scan.candidates]
    assert 1 == len(scan.oddities)
    assert str(tmp_path / odd.split("/")[0]) in scan.oddities[0]


def test_odd_files_are_reported(tmp_path):
    """A file where a model or version should be is told about."""
    (tmp_path / "README").touch()
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "1").touch()
    (tmp_path / "sound" / "1").mkdir(parents=True)
    assert 2 == len(scan_repository(tmp_path).oddities)


def test_dot_names_are_left_alone(tmp_path):
    """Names that start with a dot are neither candidates nor odd."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "topics" / ".tmp").mkdir(parents=True)
    (tmp_path / "topics" / "1").mkdir()
    assert ([Candidate("topics", 1, tmp_path / "topics" / "1")], []) == scan_repository(tmp_path)


def test_a_repository_that_is_not_there_is_an_error(tmp_path):
    """A missing repository, or a file in its place, is an error that names it and says what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(RepositoryError, match=r"missing does not exist: .* `weft export CHECKPOINT .*missing/MODEL/1`"):
        scan_repository(tmp_path / "missing")
    with pytest.raises(RepositoryError, match="file is a file, not a folder"):
        scan_repository(tmp_path / "file")


def bundle(path):
    """A folder with a manifest."""
    path.mkdir(parents=True)
    (path / "bundle.json").touch()


def checkpoint(path):
    """A folder with a config."""
    path.mkdir(parents=True)
    (path / "config.json").touch()


@pytest.mark.parametrize(
    ("make", "served", "sentence"),
    [
        (lambda r: r.mkdir(), "r", "{r} is empty: a model repository holds MODEL/VERSION/bundle.json; `weft export"),
        (
            lambda r: bundle(r / "en-es" / "1"),
            "r/en-es/1",
            "{r}/en-es/1 is one bundle, not a model repository; serve {r},",
        ),
        (
            lambda r: bundle(r / "en-es" / "1"),
            "r/en-es",
            "{r}/en-es is one model, not a model repository; serve the .* {r}",
        ),
        (checkpoint, "r", "{r} is a checkpoint, .* `weft export {r} models/MODEL/1` makes a bundle of it"),
        (lambda r: checkpoint(r / "a"), "r", "{r} holds checkpoints, .* `weft export {r}/a models/a/1` makes"),
        (
            lambda r: checkpoint(r / "my bert"),
            "r",
            "{r} holds checkpoints, .* `weft export '{r}/my bert' 'models/my bert/1'` makes",
        ),
        (
            lambda r: checkpoint(r / "my bert"),
            "r/my bert",
            "{r}/my bert is .* `weft export '{r}/my bert' models/MODEL/1` ",
        ),
        (lambda r: (r / "Upper" / "1").mkdir(parents=True), "r", "{r} holds no model: {r}/Upper is no model: its name"),
        (
            lambda r: [(r / f"a{n}").mkdir(parents=True) for n in range(75)],
            "r",
            "{r} holds no .* and 74 more like it; a model repository",
        ),
    ],
)
def test_a_folder_without_models_is_said_to_be_what_it_is(tmp_path, make, served, sentence):
    """In one line, with what to do."""
    make(tmp_path / "r")
    with pytest.raises(RepositoryError, match="^" + sentence.format(r=tmp_path / "r")) as refused:
        scan_repository(tmp_path / served)
    assert "\n" not in str(refused.value)


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
