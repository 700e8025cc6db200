"""The brake: how many refusals a moment may have."""

from weft_server.door import brake
from weft_server.door.brake import MOMENT_S, MOST, Brake


class Clock:
    """Time that passes only in sleep."""

    def __init__(self):
        self.now, self.slept = 100.0, []

    def monotonic(self):
        """As the module's."""
        return self.now

    def sleep(self, seconds):
        """As the module's."""
        self.slept.append(seconds)
        self.now += seconds


def test_a_flood_has_so_many_refusals_in_a_moment(monkeypatch):
    """The last one of a moment sleeps until it is over, so a second has MOST / MOMENT_S of them."""
    clock = Clock()
    monkeypatch.setattr(brake, "time", clock)
    braked = Brake()
    for _ in range(10 * MOST):
        braked.refused()
    assert 10 == len(clock.slept)
    assert abs(10 * MOMENT_S - (clock.now - 100.0)) < 1e-9


def test_few_refusals_sleep_never(monkeypatch):
    """Refusals that come slowly are told at once."""
    clock = Clock()
    monkeypatch.setattr(brake, "time", clock)
    braked = Brake()
    for _ in range(100):
        clock.now += MOMENT_S
        braked.refused()
    assert [] == clock.slept
