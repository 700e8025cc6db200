"""The matrix: whatever befalls a request, in whatever stage, it ends once and nothing of it stays.

Each cell is one test, on a real server whose stage is held open. See cells.py for the table. CI runs a few of them,
`make test-all` some, and `make matrix` all.
"""

import signal
from collections import Counter
from contextlib import contextmanager
from functools import partial
from itertools import product

import grpc
import pytest
from asking import Asked, Client, answers_alone, request_of
from cells import ALL, CELLS, FAULTS, KINDS, ON_THE_WAY, PORTS, STAGES, TASKS, expected, few, fewest, why_not
from http_asking import HttpAsked, bytes_of
from on_the_way import ON_THE_WIRE, wired

from held import Held

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FEW = few([cell for cell in CELLS if cell.fault != "drain"])
FEWEST = fewest(FEW)
# The one drain that CI sees.
CI_DRAIN = ("stream", "decoding", "gRPC")
# What a deadline that passes may be counted as.
GONE = ("DEADLINE_EXCEEDED", "CANCELLED")
# A window of so few bytes that writing waits for whoever reads.
NARROW = [("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]


def marked(cells):
    """Cells as parameters of a test. CI runs the fewest, and all that are not few are long."""
    marks = [() if cell in FEWEST else pytest.mark.whole if cell in FEW else pytest.mark.long for cell in cells]
    return [pytest.param(cell, id=cell.id, marks=mark) for cell, mark in zip(cells, marks, strict=True)]


def test_the_table_is_total():
    """Every combination is a cell or has a reason.

    Each night sees each fault in each stage by each port where any task has it. CI sees each fault, and each stage, by
    gRPC and by HTTP.
    """
    assert len(TASKS) * len(KINDS) * len(FAULTS) * len(STAGES) * len(PORTS) == len(ALL)
    assert {cell for cell in ALL if not why_not(cell)} == set(CELLS)
    assert {cell[2:] for cell in CELLS if cell.fault != "drain"} == {cell[2:] for cell in FEW}
    for is_http in (False, True):
        seen = [cell for cell in FEWEST if (cell.port != "gRPC") == is_http]
        assert {"drain", *(cell.fault for cell in seen)} == set(FAULTS)
        assert {*STAGES} - ({"sending"} if is_http else set()) == {cell.stage for cell in seen}


class Scene:
    """The requests of a cell, brought into its stage."""

    def __init__(self, server, channel, cell):
        self.server, self.channel, self.cell = server, channel, cell
        self.explains = cell.stage == "explaining"

    def bring(self, first):
        """Ask: `first` and two beside it in one batch, one behind them. They are held in the stage afterwards."""
        return [*self.hold([first, *self.beside], self.cell.point), self.behind()]

    def hold(self, asks, point):
        """Ask, so that all wait together, and hold the lane that takes them at a point."""
        server, cell, model = self.server, self.cell, TASKS[self.cell.task].model
        server.say(cell.step, "hold")
        asked = []
        for ask in asks:
            asked.append(server.queue(model, ask, lambda: is_over(asked[:1])))
        if point != cell.step:
            server.say(point, "hold")
            server.free(cell.step)
        server.wait_until(lambda: server.is_held(point) or is_over(asked[:1]), what=f"somebody held at {point}")
        return asked

    def behind(self):
        """One more request, which waits for the lane. An explanation holds no lane: then it is answered."""
        if self.explains:
            behind = self.other(3)
            behind.end()
            return behind
        return self.server.queue(TASKS[self.cell.task].model, partial(self.other, 3))

    @property
    def beside(self):
        """How to ask those beside the first."""
        return [partial(self.other, number) for number in (1, 2)]

    def other(self, number):
        """A request that nothing befalls, sent."""
        return Asked(self.channel, self.cell.task, "unary", request_of(self.cell.task, number))

    def first(self, timeout=120, **more):
        """The first request, sent."""
        cell, channel = self.cell, more.pop("channel", self.channel)
        if cell.port != "gRPC":
            return HttpAsked(self.server, cell, bytes_of(cell, timeout_s=timeout), **more)
        request = request_of(cell.task, 0, cell.kind, explains=self.explains)
        return Asked(channel, cell.task, cell.kind, request, timeout, **more)

    @contextmanager
    def one_ends(self, *codes):
        """Wait until the server has counted one end more of these than before the block."""
        before = self.num_ended(codes)
        yield
        self.server.wait_until(lambda: self.num_ended(codes) == before + 1, what=f"one more of {codes}")

    def num_ended(self, codes):
        """RPCs of the model that the server has counted with one of these statuses."""
        ended = self.server.ended(TASKS[self.cell.task].model)
        return sum(ended[code] for code in codes)

    def bad(self):
        """A request that cannot be read, in the first one's place."""
        cell = self.cell
        if cell.port != "gRPC":
            return HttpAsked(self.server, cell, bytes_of(cell, is_bad=True))
        return Asked(self.channel, cell.task, cell.kind, request_of(cell.task, 0, cell.kind, is_bad=True))

    def free(self):
        """Let all go on."""
        self.server.free(self.cell.step, self.cell.run)


def is_over(asked):
    """Whether one of some calls has ended. That of a client's own process is none of ours."""
    return any(each and each.is_over for each in asked)


@pytest.mark.parametrize(
    "cell", marked([cell for cell in CELLS if cell.fault != "drain" and cell.stage not in ON_THE_WAY])
)
def test_cell(server, channel, alone, alone_by_openai, num_tasks, cell):
    """The first request ends with its status, once; all others as if it had not been; and nothing stays behind."""
    scene, model = Scene(server, channel, cell), TASKS[cell.task].model
    right = alone_by_openai(cell) if cell.port == "OpenAI" else alone[cell.task, cell.kind, 0, scene.explains]
    # That one is counted when its answer is out.
    server.wait_for_rest(num_tasks)
    before = server.ended(model) + server.ended("")
    try:
        asked = BEFALL[cell.fault](scene)
    finally:
        scene.free()
    ends = [each.end() if each else ("CANCELLED", "", None) for each in asked]
    for number, ((code, _, answer), wanted) in enumerate(zip(ends[:4], expected(cell), strict=True)):
        assert wanted == code, f"request {number}"
        if code == "OK":
            known = alone[cell.task, "unary", number, False] if number else right
            assert known == answer, f"request {number} was answered otherwise"
    server.wait_for_rest(num_tasks)

    ended = server.ended(model) + server.ended("") - before
    if cell.fault == "deadline":
        # A client whose deadline has passed cancels. If the way to the server took long, its own clock is behind.
        ended["DEADLINE_EXCEEDED"] += ended.pop("CANCELLED", 0)
    assert Counter(code for code, _, _ in ends) == ended
    assert [] == [event for event in server.log if event["event"] == "bug"]


def ok(scene):
    """Nothing befalls it."""
    asked = scene.bring(scene.first)
    scene.free()
    return asked


def cancel(scene):
    """Its caller cancels it. The call ends at once, whatever its stage is at."""
    asked = scene.bring(scene.first)
    with scene.one_ends("CANCELLED"):
        asked[0].call.cancel()
    return asked


def deadline(scene):
    """Its deadline passes while the stage is held."""
    early = []
    for timeout in (1.5, 8, 40):
        before = scene.num_ended(GONE)
        asked = scene.bring(lambda timeout=timeout: scene.first(timeout))
        if not asked[0].is_over:
            break
        # The machine is slow: it passed before the stage was reached. Once more, with more time.
        early += asked
        scene.free()
        for each in asked:
            each.end()
    scene.server.wait_until(lambda: scene.num_ended(GONE) == before + 1, timeout=60, what="its end")
    return [*asked, *early]


def bad_input(scene):
    """One more request comes that cannot be read, while others are in the stage. It is the one that counts here."""
    asked = scene.bring(scene.first)
    bad = scene.bad()
    assert "INVALID_ARGUMENT" == bad.end()[0]
    scene.free()
    good, *others = asked
    assert "OK" == good.end()[0]
    return [bad, *others, good]


def error(scene):
    """The run that is held fails when it has done its work."""
    server, cell = scene.server, scene.cell
    if cell.stage == "queued":
        beside = scene.hold(scene.beside, cell.run)
        asked = [server.queue(TASKS[cell.task].model, scene.first), *beside, scene.behind()]
    else:
        asked = scene.bring(scene.first)
    server.say(cell.run, "raise")
    server.wait_until(lambda: not server.is_held(cell.run), what="the end of the hold")
    return asked


def slow_reader(scene):
    """Its caller reads nothing more for as long as the others take. It holds no slot meanwhile, and gets its answer."""
    server, cell = scene.server, scene.cell
    with grpc.insecure_channel(server.target, options=NARROW) as channel:
        # What comes before an explanation has to be read, or there is none.
        reads = cell.stage == "explaining" and cell.port == "gRPC"
        asked = scene.bring(lambda: scene.first(channel=channel, reads=reads))
        asked[0].pause()
        scene.free()
        for each in asked[1:]:
            assert "OK" == each.end()[0]
        server.wait_until(lambda: server.metric("weft_decode_slots_used") == 0, what="a free slot")
        server.wait_until(lambda: server.metric("weft_requests_explaining") == 0, what="the explanation")
        assert not asked[0].is_over
        asked[0].go_on()
        asked[0].end()
    return asked


def client_killed(scene):
    """The process of its caller is killed."""
    cell, by_grpc = scene.cell, scene.cell.port == "gRPC"
    client = Client(scene.server.target if by_grpc else scene.server.api)
    request = request_of(cell.task, 0, cell.kind, explains=scene.explains)
    ask = partial(client.ask, cell.task, cell.kind, request) if by_grpc else partial(client.send, bytes_of(cell))
    with scene.one_ends("CANCELLED"):
        try:
            asked = scene.bring(ask)
        finally:
            client.kill()
    return asked


BEFALL = {
    "ok": ok,
    "cancel": cancel,
    "deadline": deadline,
    "bad input": bad_input,
    "error": error,
    "slow reader": slow_reader,
    "client killed": client_killed,
}


@pytest.mark.parametrize("cell", marked([cell for cell in CELLS if cell.fault != "drain" and cell.stage in ON_THE_WAY]))
def test_cell_on_the_way(server, alone, alone_by_openai, channel, num_tasks, cell):
    """As test_cell, where the first request's message has not come whole, or its answer is not read."""
    right = alone_by_openai(cell) if cell.port == "OpenAI" else alone[cell.task, cell.kind, 0, False]
    before = server.ended("") + server.ended(TASKS[cell.task].model)
    with wired(server, cell) as first:
        code, answer = ON_THE_WIRE[cell.fault](first)
        # Nobody else notices.
        for number in (1, 2):
            asked = Asked(channel, cell.task, "unary", request_of(cell.task, number))
            assert alone[cell.task, "unary", number, False] == asked.end()[2]
    assert answer in (None, right)
    server.wait_for_rest(num_tasks)
    ended = server.ended("") + server.ended(TASKS[cell.task].model) - before
    if cell.fault == "deadline":
        # Whose clock was first: gRPC's or ours.
        ended["DEADLINE_EXCEEDED"] += ended.pop("CANCELLED", 0)
        code = "DEADLINE_EXCEEDED"
    assert expected(cell)[0] == code
    assert Counter({"OK": 2}) + Counter([code]) == ended
    assert [] == [event for event in server.log if event["event"] == "bug"]


# A drain ends the server, so the cells of all tasks have one together.
DRAINS = [
    (kind, stage, port)
    for kind, stage, port in product(KINDS, STAGES, PORTS)
    if stage not in ON_THE_WAY and any(cell[1:] == (kind, "drain", stage, port) for cell in CELLS)
]


@pytest.mark.parametrize(
    ("kind", "stage", "port"),
    [pytest.param(*drain, id="-".join(drain), marks=() if drain == CI_DRAIN else pytest.mark.long) for drain in DRAINS],
)
def test_drain(repository, tmp_path, kind, stage, port):
    """SIGTERM finds requests of all tasks in a stage: all are answered as ever, who comes later is refused."""
    cells = [cell for cell in CELLS if cell[1:] == (kind, "drain", stage, port)]
    with Held(repository, tmp_path, api_port=0) as server, grpc.insecure_channel(server.target) as channel:
        server.wait_for("ready")
        server.api = server.wait_for("listening")["api"]
        alone = answers_alone(channel)
        if port == "OpenAI":
            asked = {cell: HttpAsked(server, cell, bytes_of(cell)) for cell in cells}
            alone |= {(cell.task, kind, 0, stage == "explaining"): each.end()[2] for cell, each in asked.items()}
        scenes = [Scene(server, channel, cell) for cell in cells]
        asked = [scene.bring(scene.first) for scene in scenes]
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("draining")
        server.wait_until(lambda: late(channel) == ("UNAVAILABLE", "DRAINING"), what="a refusal")
        for scene in scenes:
            scene.free()
        ends = [[each.end() for each in of_cell] for of_cell in asked]
        assert 0 == server.exit_code()

    for cell, of_cell in zip(cells, ends, strict=True):
        assert list(expected(cell)) == [code for code, _, _ in of_cell], cell.id
        for number, (_, _, answer) in enumerate(of_cell):
            key = (kind, 0, stage == "explaining") if number == 0 else ("unary", number, False)
            assert alone[cell.task, *key] == answer, f"{cell.id}: request {number}"
    assert [] == [event for event in server.log if event["event"] in {"bug", "failed"}]


def late(channel):
    """What a call ends with that comes now."""
    return Asked(channel, "classify text", "unary", request_of("classify text", 0), timeout=5).end()[:2]


@pytest.mark.long
@pytest.mark.parametrize("stage", ON_THE_WAY)
@pytest.mark.parametrize("kind", KINDS)
def test_drain_on_the_way(repository, tmp_path, kind, stage):
    """SIGTERM finds messages that have not come whole, and refuses them; or answers that are not read, and waits."""
    cells = [cell for cell in CELLS if cell[1:4] == (kind, "drain", stage)]
    with Held(repository, tmp_path, api_port=0) as server, grpc.insecure_channel(server.target) as channel:
        server.wait_for("ready")
        server.api = server.wait_for("listening")["api"]
        alone = answers_alone(channel)
        firsts = [wired(server, cell) for cell in cells]
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("draining")
        for cell, first in zip(cells, firsts, strict=True):
            with first:
                code, answer = first.finish()
                assert (expected(cell)[0], answer) in {(code, None), (code, alone[cell.task, kind, 0, False])}, cell.id
        assert 0 == server.exit_code()
    assert [] == [event for event in server.log if event["event"] in {"bug", "failed"}]
