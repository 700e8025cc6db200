"""What hangs is replaced at each beat, and whoever asks hears what is stuck."""

import asyncio
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from weft_proto.v1 import common_pb2, model_pb2
from weft_server.lifecycle import watchdog as pulse_module
from weft_server.lifecycle.watchdog import STALL_S, Watchdog
from weft_server.models.registry import ModelRegistry, RegistryEntry

STEP_S = 60.0


class _Supervised:
    """A model as the pulse sees it."""

    def __init__(self, name, *, fault="", has_failed=False):
        self.name, self.fault, self.has_failed = name, fault, has_failed
        self.last_beat, self.timeouts = 1000.0, []
        self.manifest = SimpleNamespace(task=common_pb2.TASK_GENERATE)

    def supervise(self, timeout_s):
        """Note that it was looked at, and fail if it is to."""
        self.timeouts.append(timeout_s)
        if self.fault:
            raise RuntimeError(self.fault)


class _Beating:
    """A pulse over models at a clock of its own. `failed` is why it ended the server."""

    def __init__(self, monkeypatch, *models):
        self.now, self.failed = 1000.0, []
        monkeypatch.setattr(pulse_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(pulse_module, "BEAT_S", 0.0)
        state = model_pb2.MODEL_STATE_READY
        self.entries = [
            RegistryEntry(model.name if model else "asleep", 1, None, state, model=model) for model in models
        ]
        self.watchdog = Watchdog(ModelRegistry(self.entries), STEP_S, fail=self.failed.append, also=self._also)
        self._beats = None

    async def _also(self):
        self.now += next(self._beats)

    def beat(self, *pauses_s):
        """Let it beat once before each pause."""
        self._beats = iter(pauses_s)
        with pytest.raises(RuntimeError, match="StopIteration"):
            asyncio.run(self.watchdog.beat())


def test_a_bug_with_one_model_leaves_the_others_supervised(monkeypatch):
    """It is logged once for each sentence that it says, and a model that has left memory is not looked at."""
    broken, sound = _Supervised("broken", fault="first"), _Supervised("sound")
    beating = _Beating(monkeypatch, broken, None, sound)
    with capture_logs() as logs:
        beating.beat(0.0, 0.0)
        broken.fault = "second"
        beating.beat(0.0)
        entry = beating.entries[0]
        entry.model = None
        beating.beat(0.0)
        entry.model = broken  # what it says then is news
        beating.beat(0.0)
    assert [STEP_S] * 7 == broken.timeouts
    assert [STEP_S] * 9 == sound.timeouts
    assert ["supervision failed"] * 3 == [entry["event"] for entry in logs]
    assert [] == beating.failed


def test_a_model_whose_lanes_fail_too_often_ends_the_server(monkeypatch):
    """The reason names it."""
    beating = _Beating(monkeypatch, _Supervised("sound"), _Supervised("broken", has_failed=True))
    beating.beat()
    assert ["too many failures of model broken"] == beating.failed


def test_a_process_that_stood_still_gives_its_lanes_another_beat(monkeypatch):
    """They look as if they hung."""
    model = _Supervised("m")
    beating = _Beating(monkeypatch, model)
    beating.beat(0.0)
    assert 2 == len(model.timeouts)
    beating.now += 10.0
    beating.beat()
    assert 2 == len(model.timeouts)
    beating.beat()
    assert 3 == len(model.timeouts)


def test_what_is_stuck_is_said(monkeypatch):
    """A lane that nobody could replace in time, and the loop whose beats do not come. Before the first, nothing is."""
    model = _Supervised("m")
    beating = _Beating(monkeypatch, model)
    late = STEP_S + STALL_S + 1
    beating.now += late - 2
    assert "" == beating.watchdog.why_not_live()
    beating.now += 2
    assert "model m has a lane that is stuck" == beating.watchdog.why_not_live()
    model.last_beat = beating.now
    assert "" == beating.watchdog.why_not_live()
    beating.beat()
    beating.now += late
    assert "the event loop is stuck" == beating.watchdog.why_not_live()
