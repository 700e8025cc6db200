"""Failpoints: none unless a variable names their folder, and then what their files say."""

import subprocess
import sys
import threading
import time

import pytest

from weft_server.bundle.load import load_bundle
from weft_server.config import ServerConfig, read_config
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.loading.lanes import Graphs, decode_lanes
from weft_server.process import failpoints
from weft_server.process.failpoints import Failpoints
from weft_server.runtime.device import HOST
from weft_server.runtime.session import Session
from weft_server.telemetry.metrics import Metrics


class Door:
    """Something with a method."""

    def __init__(self):
        self.num_opened = 0

    def open(self, *, wide):
        """Go through."""
        self.num_opened += 1
        return wide


@pytest.fixture
def wired(tmp_path):
    """(what says what happens at the point, a door behind the point)."""
    door = Door()
    Failpoints(tmp_path).wire(door, "open", "house.open")

    def say(what):
        if what is None:
            (tmp_path / "house.open").unlink()
            return
        (tmp_path / "fresh").write_text(what)
        (tmp_path / "fresh").rename(tmp_path / "house.open")

    return say, door


def _until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_by_default_there_are_none_and_none_is_called(tiny_repository):
    """Without the variable there is no object of points, and what runs in a step are the methods of the classes."""
    assert failpoints.POINTS is None
    graphs = Graphs(load_bundle(tiny_repository / "tiny-translate" / "1"), [HOST], 1)
    lanes = decode_lanes(graphs, 1, read_config(repository=tiny_repository.folder), Metrics().for_model("m", 1, "t"))
    for lane in (lanes.ready[0], lanes.make(0)):
        assert (DecodeLane.step, DecodeRunner.decode) == (lane.step.__func__, lane.runner.decode.__func__)
        assert Session.run is lane.runner.encoder.run.__func__


def test_the_variable_alone_makes_them_and_is_no_setting(tmp_path):
    """It is read at the start of the process. The manual does not have it."""
    script = "from weft_server.process.failpoints import POINTS; print(POINTS is not None)"
    for folder, expected in (("", "False"), (str(tmp_path), "True")):
        environment = {"WEFT_FAILPOINTS": folder}
        ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
        assert expected == ran.stdout.decode().strip()
    assert "failpoints" not in ServerConfig.model_fields


def test_with_points_every_lane_has_them_also_one_made_later(tiny_repository, tmp_path, monkeypatch):
    """A lane's runner and its graphs fail where a file says so: the lanes of the start, and each one made anew."""
    monkeypatch.setattr("weft_server.loading.lanes.POINTS", Failpoints(tmp_path))
    graphs = Graphs(load_bundle(tiny_repository / "tiny-translate" / "1"), [HOST], 1)
    lanes = decode_lanes(graphs, 1, read_config(repository=tiny_repository.folder), Metrics().for_model("m", 1, "t"))
    for lane in (lanes.ready[0], lanes.make(0)):
        (tmp_path / "tiny-translate.decode").write_text("raise")
        with pytest.raises(RuntimeError, match=r"failpoint tiny-translate\.decode"):
            lane.runner.decode(1)
        lane.runner.decode(1)


def test_who_is_held_waits_until_the_file_is_gone(wired, tmp_path):
    """A mark says who waits. What the method gets and gives is as ever."""
    say, door = wired
    say("hold")
    found = []
    thread = threading.Thread(target=lambda: found.append(door.open(wide=3)), name="a/b")
    thread.start()
    _until((tmp_path / "house.open@a-b").exists)
    assert 0 == door.num_opened
    say(None)
    thread.join(20)

    assert ([3], 1) == (found, door.num_opened)
    assert [] == list(tmp_path.iterdir())


def test_some_go_by_before_one_is_held(wired, tmp_path):
    """`hold 2` holds the third. It can be told to fail, and the next one goes by."""
    say, door = wired
    say("hold 2")
    assert (1, 2) == (door.open(wide=1), door.open(wide=2))
    errors = []

    def third():
        with pytest.raises(MemoryError, match=r"failpoint house\.open") as raised:
            door.open(wide=3)
        errors.append(raised.value)

    thread = threading.Thread(target=third, name="third")
    thread.start()
    _until((tmp_path / "house.open@third").exists)
    say("memory")
    thread.join(20)

    assert 1 == len(errors)
    assert 4 == door.open(wide=4)


def test_more_are_let_by_while_one_is_held(wired, tmp_path):
    """`hold 1` instead of `hold` lets the held one go on, and holds the next."""
    say, door = wired
    say("hold")
    thread = threading.Thread(target=lambda: [door.open(wide=each) for each in range(3)], name="all")
    thread.start()
    for num_opened in range(3):
        _until(lambda n=num_opened: door.num_opened == n and (tmp_path / "house.open@all").exists())
        say(f"hold {num_opened + 1}")
    thread.join(20)

    assert 3 == door.num_opened


def test_a_failure_comes_after_the_work_and_once(wired):
    """What has been done is done: the worst that a run can leave behind."""
    say, door = wired
    say("raise")
    with pytest.raises(RuntimeError, match=r"failpoint house\.open"):
        door.open(wide=1)

    assert 1 == door.num_opened
    assert 2 == door.open(wide=2)
