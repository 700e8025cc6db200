"""The best configuration of a system for one task, found on a small sample."""

from dataclasses import dataclass

from peer import Peer, PeerError
from systems import OUT, WEIGHTS
from workloads import Workload

LOG = OUT / "adapters.log"


@dataclass(frozen=True)
class Task:
    """A workload at one precision with so many requests in flight."""

    workload: Workload
    precision: str
    in_flight: int

    def __str__(self):
        return f"{self.workload.name} {self.precision}, {self.in_flight} in flight"

    @property
    def folder(self):
        """The weights."""
        return str(WEIGHTS / self.workload.shape)

    def settings(self, system, num_cpus):
        """Make the system's form of the weights; its version and the configurations that it proposes.

        Raises:
            PeerError: the system is not installed, or has nothing for this task.
        """
        asked = {"workload": self.workload.name, "precision": self.precision, "in_flight": self.in_flight}
        with Peer(system, LOG) as peer:
            version = peer.ask("version")["version"]
            settings = peer.ask("settings", num_cpus=num_cpus, **asked)["settings"]
            if not settings:
                raise PeerError(f"has no {self.precision} for this workload")
            peer.ask("prepare", folder=self.folder, precision=self.precision)
        return version, settings

    def opened(self, system, setting):
        """A Peer that is loaded and has answered once as many requests as may be in flight."""
        peer = Peer(system, LOG, setting.get("environment"))
        try:
            asked = {"workload": self.workload.name, "precision": self.precision, "setting": setting}
            peer.ask("load", folder=self.folder, **asked)
            self.run(peer, self.workload.requests(self.in_flight, seed="warm"))
        except PeerError:
            peer.close()
            raise
        return peer

    def run(self, peer, requests, **more):
        """The adapter's answer, and in it `speed`: so many of workload.unit.

        Raises:
            PeerError: an answer has not the length that was asked for.
        """
        answer = peer.ask("run", requests=requests, in_flight=self.in_flight, **more)
        if self.workload.writes and answer["lengths"] != [request["num_new"] for request in requests]:
            raise PeerError("answers are not as long as was asked for")
        return answer | {"speed": self.workload.amount(requests) / answer["seconds"]}


NUM_PASSES = 3
# Who reaches this share of the fastest so far stays for the next pass; two tries of the same differ by up to 15 %.
NEAR = 0.85


def best_setting(task, system, settings, requests):
    """The fastest on `requests`, each by its best pass in processes of their own; one that fails is left out.

    After each of NUM_PASSES only those near the fastest stay. Every other pass goes backwards, so that a machine that
    slows down or speeds up favours none.

    Raises:
        PeerError: none of them works.
    """
    if len(settings) == 1:
        return settings[0]
    stay, speeds = list(range(len(settings))), {}
    for number in range(NUM_PASSES):
        for index in stay if number % 2 == 0 else stay[::-1]:
            try:
                with task.opened(system, settings[index]) as peer:
                    speed = task.run(peer, requests)["speed"]
            except PeerError as error:
                failure = error
                speeds.pop(index, None)
                print(f"  {system.name} {settings[index]}: {error}", flush=True)
            else:
                speeds[index] = max(speed, speeds.get(index, 0))
                print(f"  {system.name} {settings[index]}: {speed:.1f} {task.workload.unit}", flush=True)
        if not speeds:
            raise failure
        stay = [index for index in stay if speeds.get(index, 0) >= NEAR * max(speeds.values())]
        if len(stay) == 1:
            break
    return settings[max(speeds, key=speeds.get)]
