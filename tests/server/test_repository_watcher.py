"""A watched repository: what two looks agree on is done, and nothing before."""

import asyncio
import json
import os
import shutil

import pytest
from structlog.testing import capture_logs

from endless import endless_bundle, loop_in_a_run
from lifecycles import Keeping, repository_of
from waiting import until
from weft_proto.v1 import model_pb2
from weft_server.lifecycle import repository_watcher
from weft_server.lifecycle.repository_watcher import RepositoryWatcher
from weft_server.models.version_labels import VersionLabels

READY = model_pb2.MODEL_STATE_READY


@pytest.fixture
def bundle(tiny_repository):
    """A small one."""
    return tiny_repository / "tiny-text" / "1"


class Watching(Keeping):
    """A lifecycle and a watcher over it, whose looks a test makes itself. What is there at first is loaded."""

    async def __aenter__(self):
        await super().__aenter__()
        self.watcher = RepositoryWatcher(self.lifecycle, self.models, self.config.repository)
        await self.look(2)
        return self

    async def look(self, times=1):
        """Look, and let what the look begins be done."""
        for _ in range(times):
            await self.watcher.look()
            await self.watcher.settled()


def test_looks_have_a_pause_between_them(monkeypatch):
    """The first is at once. After one that fails there is another."""
    watcher, looks = RepositoryWatcher(None, None, None), []

    async def look():
        looks.append(1)
        await asyncio.sleep(0)
        raise OSError

    async def looked(turns):
        looks.clear()
        watching = asyncio.create_task(watcher.watch())
        for _ in range(turns):
            await asyncio.sleep(0)
        watching.cancel()
        return len(looks)

    monkeypatch.setattr(watcher, "look", look)
    assert 1 == asyncio.run(looked(20))
    monkeypatch.setattr(repository_watcher, "LOOK_S", 0)
    assert 1 < asyncio.run(looked(20))


def test_a_bug_in_a_change_is_told_and_nothing_else_is():
    """One that ends well, and one that ends with the server, say nothing. Another look may begin each of them anew."""
    watcher = RepositoryWatcher(None, None, None)

    async def wrong():
        raise RuntimeError("a bug")

    async def run():
        watcher.begin({("m", 1): wrong(), ("m", 2): asyncio.sleep(0), ("m", 3): asyncio.sleep(60)})
        watcher.changing["m", 3].cancel()
        await watcher.settled()
        await asyncio.sleep(0)

    with capture_logs() as logs:
        asyncio.run(run())
    assert [("watch failed", "m", 1)] == [(log["event"], log["model"], log["version"]) for log in logs]
    assert "a bug" == str(logs[0]["exc_info"])
    assert {} == watcher.changing


def test_a_version_that_comes_is_loaded_and_one_that_goes_is_unloaded(bundle, tmp_path):
    """At the second look that sees it, or does not."""
    repository = repository_of(tmp_path, bundle, 1)

    async def run():
        async with Watching(repository) as kept:
            assert {("m", 1): READY} == kept.standing()
            repository_of(tmp_path, bundle, 2)
            repository_of(tmp_path, bundle, 1, name="n")
            await kept.look()
            assert {("m", 1): READY} == kept.standing()
            await kept.look()
            assert {("m", 1): READY, ("m", 2): READY, ("n", 1): READY} == kept.standing()
            shutil.rmtree(repository / "m" / "1")
            shutil.rmtree(repository / "n")
            await kept.look()
            assert 3 == len(kept.standing())
            await kept.look()
            assert {("m", 2): READY} == kept.standing()
            repository_of(tmp_path, bundle, 1)
            await kept.look(2)
            assert {("m", 1): READY, ("m", 2): READY} == kept.standing()

    asyncio.run(run())


def test_a_folder_that_is_being_copied_is_not_loaded(bundle, tmp_path):
    """File by file, the manifest first or last: no look sees a bundle before it has been whole for two."""
    repository = repository_of(tmp_path, bundle, 1)

    async def run():
        async with Watching(repository) as kept:
            for version, files in ((2, sorted(bundle.iterdir())), (3, sorted(bundle.iterdir(), reverse=True))):
                directory = repository / "m" / str(version)
                directory.mkdir()
                await kept.look()
                for path in files:
                    shutil.copy2(path, directory)
                    await kept.look()
                    assert kept.models.at("m", version) is None
                await kept.look()
                assert READY == kept.models.at("m", version).state
            assert 0 == kept.metrics.loads["refused"].value

    asyncio.run(run())


def test_a_bundle_that_is_refused_is_tried_again_when_it_changes(bundle, tmp_path):
    """And not before: its refusal is one line of the log, and touches no other."""
    repository = repository_of(tmp_path, bundle, 1, 2)
    (repository / "m" / "2" / "extra").touch()

    async def run():
        async with Watching(repository) as kept:
            await kept.look(5)
            assert {("m", 1): READY} == kept.standing()
            assert 1 == kept.metrics.loads["refused"].value
            (repository / "m" / "2" / "extra").unlink()
            await kept.look(2)
            assert {("m", 1): READY, ("m", 2): READY} == kept.standing()

    asyncio.run(run())


def test_what_an_admin_unloads_stays_away_until_it_changes(bundle, tmp_path):
    """The watch and the admin do not fight."""
    repository = repository_of(tmp_path, bundle, 1, 2)

    async def run():
        async with Watching(repository) as kept:
            await kept.look()
            await kept.lifecycle.unload("m", 2)
            await kept.look(3)
            assert {("m", 1): READY} == kept.standing()
            await kept.lifecycle.load("m", 2)
            await kept.look(3)
            assert {("m", 1): READY, ("m", 2): READY} == kept.standing()

    asyncio.run(run())


def test_what_an_admin_unloads_stays_away_though_its_folder_was_away(bundle, tmp_path):
    """The same files come back: nobody has asked for them. Other ones do come, and so does what the watch unloaded."""
    repository = repository_of(tmp_path / "models", bundle, 1, 2)
    repository_of(repository, bundle, 1, name="n")

    async def run():
        async with Watching(repository) as kept:
            await kept.lifecycle.unload("m", 2)
            for version in ("1", "2"):
                (repository / "m" / version).rename(tmp_path / f"away-{version}")
            await kept.look(3)
            assert {("n", 1): READY} == kept.standing()
            for version in ("1", "2"):
                (tmp_path / f"away-{version}").rename(repository / "m" / version)
            await kept.look(3)
            assert {("m", 1): READY, ("n", 1): READY} == kept.standing()
            (repository / "m" / "2" / "bundle.json").touch()
            await kept.look(2)
            assert READY == kept.models.at("m", 2).state

    asyncio.run(run())


def test_what_had_changed_before_an_admin_unloads_it_is_no_change_after(bundle, tmp_path):
    """A version that answers is unloaded as its files are then."""
    repository = repository_of(tmp_path, bundle, 1, 2)

    async def run():
        async with Watching(repository) as kept:
            (repository / "m" / "2" / "bundle.json").touch()
            await kept.look(2)
            await kept.lifecycle.unload("m", 2)
            await kept.look(3)
            assert {("m", 1): READY} == kept.standing()

    asyncio.run(run())


def test_what_an_admin_unloads_first_of_all_stays_away_too(bundle, tmp_path, monkeypatch):
    """The watch has looked before anybody can ask for something."""
    repository = repository_of(tmp_path, bundle, 1)
    monkeypatch.setattr(repository_watcher, "LOOK_S", 3600)

    async def run():
        async with Keeping(repository) as kept:
            await kept.lifecycle.load("m", 1)
            follower = RepositoryWatcher(kept.lifecycle, kept.models, repository)
            watching = asyncio.create_task(follower.watch())
            await until(lambda: follower.tried)
            await kept.lifecycle.unload("m", 1)
            await follower.look()
            await follower.look()
            assert {} == kept.standing()
            watching.cancel()

    asyncio.run(run())


def test_a_repository_that_is_gone_or_empty_changes_nothing(bundle, tmp_path):
    """A share that is not mounted for a moment is no reason to unload everything."""
    repository = repository_of(tmp_path / "models", bundle, 1)

    async def run():
        async with Watching(repository) as kept:
            repository.rename(tmp_path / "away")
            await kept.look(3)
            repository.mkdir()
            await kept.look(3)
            assert {("m", 1): READY} == kept.standing()
            repository.rmdir()
            (tmp_path / "away").rename(repository)
            await kept.look(3)
            assert {("m", 1): READY} == kept.standing()

    asyncio.run(run())


def test_labels_follow_their_file(bundle, tmp_path):
    """A canary is one from its first moment; a file that states no labels leaves those that were."""
    repository = repository_of(tmp_path, bundle, 1)
    path = repository / "m" / "labels.json"

    async def run():
        async with Watching(repository) as kept:
            path.write_text(json.dumps({"stable": 1, "canary": {"version": 2, "share": 0.1}}))
            await kept.look()
            assert VersionLabels() == kept.models.labels("m")
            await kept.look()
            assert VersionLabels(1) == kept.models.labels("m")
            repository_of(tmp_path, bundle, 2)
            await kept.look(2)
            assert VersionLabels(1, 2, 0.1) == kept.models.labels("m")
            path.write_text("{")
            await kept.look(2)
            assert VersionLabels(1, 2, 0.1) == kept.models.labels("m")
            path.write_text('{"stable": 2}')
            await kept.look(2)
            assert VersionLabels(2) == kept.models.labels("m")
            # What an admin sets stays until the file changes.
            await kept.lifecycle.label("m", "stable", 1)
            await kept.look(2)
            assert VersionLabels(1) == kept.models.labels("m")
            path.unlink()
            await kept.look(2)
            assert VersionLabels() == kept.models.labels("m")

    asyncio.run(run())


def test_a_swap_s_labels_stay_though_the_file_names_a_version_that_left(bundle, tmp_path):
    """A version that leaves is no change of the file. One that comes is: the file may mean it."""
    repository = repository_of(tmp_path, bundle, 1, 2)
    (repository / "m" / "labels.json").write_text('{"stable": 1}')

    async def run():
        async with Watching(repository) as kept:
            await kept.look(3)
            assert VersionLabels(1) == kept.models.labels("m")
            await kept.lifecycle.swap("m", 2)
            await kept.look(2)
            assert VersionLabels(2) == kept.models.labels("m")
            await kept.lifecycle.load("m", 1)
            await kept.look(2)
            assert VersionLabels(1) == kept.models.labels("m")

    asyncio.run(run())


def test_a_folder_that_cannot_be_listed_for_a_moment_keeps_its_labels(bundle, tmp_path):
    """It is away for one look, with its file of labels."""
    repository = repository_of(tmp_path, bundle, 1)
    (repository / "m" / "labels.json").write_text('{"stable": 1}')

    async def run():
        async with Watching(repository) as kept:
            await kept.look(3)
            (repository / "m").rename(tmp_path / "away")
            (repository / "other").mkdir()
            await kept.look()
            (tmp_path / "away").rename(repository / "m")
            await kept.look()
            assert VersionLabels(1) == kept.models.labels("m")

    asyncio.run(run())


def test_labels_that_cannot_be_read_keep_new_versions_of_their_model_away(bundle, tmp_path):
    """One might be meant to be a canary. Other models come and go as ever."""
    repository = repository_of(tmp_path, bundle, 1)
    path = repository / "m" / "labels.json"

    async def run():
        async with Watching(repository) as kept:
            path.write_text("{")
            repository_of(tmp_path, bundle, 2)
            repository_of(tmp_path, bundle, 1, name="n")
            await kept.look(3)
            assert {("m", 1): READY, ("n", 1): READY} == kept.standing()
            path.write_text('{"canary": {"version": 2}}')
            await kept.look()
            assert 3 == len(kept.standing())
            assert VersionLabels(canary=2) == kept.models.labels("m")

    asyncio.run(run())


def test_what_is_wrong_with_labels_is_told_once_until_it_changes(bundle, tmp_path):
    """And again when it comes back."""

    async def run():
        async with Watching(repository_of(tmp_path, bundle, 1)) as kept:
            labels = tmp_path / "m" / "labels.json"
            with capture_logs() as logs:
                for text in ("{", "{", "{}", "{"):
                    labels.write_text(text)
                    await kept.look()
            return [log["why"] for log in logs if log["event"] == "repository"]

    told = asyncio.run(run())
    assert 2 == len(told)
    assert "labels.json is no JSON" in told[0] == told[1]


def test_links_are_followed_as_the_scan_does(bundle, tmp_path):
    """A link to a bundle is one, and gone with its target."""
    repository, away = repository_of(tmp_path / "models", bundle, 1), tmp_path / "away"
    shutil.copytree(bundle, away)

    async def run():
        async with Watching(repository) as kept:
            (repository / "m" / "2").symlink_to(away)
            await kept.look(2)
            assert {("m", 1): READY, ("m", 2): READY} == kept.standing()
            shutil.rmtree(away)
            await kept.look(2)
            assert {("m", 1): READY} == kept.standing()

    asyncio.run(run())


def test_a_repair_of_the_same_size_and_time_is_seen(bundle, tmp_path):
    """Tools that copy set the time of a file's content. Nobody sets that of its status."""
    repository = repository_of(tmp_path, bundle, 1, 2)
    path = repository / "m" / "2" / "tokenizer.json"
    sound, stat = path.read_bytes(), path.stat()
    path.write_bytes(b"x" + sound[1:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    async def run():
        async with Watching(repository) as kept:
            await kept.look(2)
            assert {("m", 1): READY} == kept.standing()
            path.write_bytes(sound)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            await kept.look(2)
            assert {("m", 1): READY, ("m", 2): READY} == kept.standing()

    asyncio.run(run())


def test_a_bundle_without_an_end_keeps_no_look_waiting(bundle, tmp_path):
    """While it loads, others come and go, and labels follow their file."""
    repository = repository_of(tmp_path, bundle, 1)

    async def run():
        async with Watching(repository, load_timeout_s=600) as kept:
            endless_bundle(repository / "m" / "2", bundle, loop_in_a_run)
            for _ in range(3):
                await kept.watcher.look()
            repository_of(tmp_path, bundle, 1, name="n")
            (repository / "n" / "labels.json").write_text('{"stable": 1}')
            for _ in range(2):
                await kept.watcher.look()
            await until(lambda: kept.models.at("n", 1))
            await kept.watcher.look()
            assert VersionLabels(1) == kept.models.labels("n")
            shutil.rmtree(repository / "n")
            for _ in range(2):
                await kept.watcher.look()
            await until(lambda: {("m", 1): READY} == kept.standing())

    asyncio.run(run())
