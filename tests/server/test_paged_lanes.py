"""How lanes over a paged cache begin: whose slots they have, and what they try before anybody asks."""

from types import SimpleNamespace

import numpy as np
import pytest

from paged_toy import MAX_TOTAL, PagedToy
from weft_server.config import read_config
from weft_server.engine.paged.paged_runner import PagedRunner
from weft_server.engine.slots import Slots
from weft_server.loading.limit_checks import verify_paged
from weft_server.loading.paged_lanes import paged_lanes
from weft_server.runtime.cuda.best_only import Decoder
from weft_server.runtime.device import Device
from weft_server.runtime.session import Session
from weft_server.telemetry.metrics import Metrics

BLOCK_TOKENS = 4


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The toy, and a session of it."""
    toy = PagedToy(tmp_path_factory.mktemp("toy"), BLOCK_TOKENS)
    toy.session = Session(toy.path, 1, Device(in_place=False))
    return toy


@pytest.mark.parametrize(("slots", "num_lanes", "expected"), [(5, 2, [3, 2]), (4, 2, [2, 2]), (3, 1, [3])])
def test_lanes_share_the_slots(toy, tmp_path, slots, num_lanes, expected):
    """All of them, as evenly as can be. A lane that is made anew has as many."""
    graphs = SimpleNamespace(
        manifest=toy.manifest,
        places=range(1),
        open_decoder=lambda _: Decoder(toy.session),
        bundle=SimpleNamespace(name="toy"),
    )
    config = read_config(repository=tmp_path, slots=slots)
    lanes = paged_lanes(graphs, num_lanes, config, Metrics().for_model("toy", 1, "generate"))
    assert expected == [lane.slots.num_slots for lane in lanes.ready]
    assert expected == [lanes.make(index).slots.num_slots for index in range(num_lanes)]


@pytest.mark.parametrize(("num_slots", "num_runs"), [(2, 3), (1, 2)])
def test_each_row_of_a_trial_has_blocks_for_what_it_writes(toy, num_slots, num_runs):
    """Alone, and a prompt beside another row. Afterwards slots and blocks are as new."""
    slots = Slots(num_slots, MAX_TOTAL)
    runner = PagedRunner(toy.manifest, toy.session, slots, 40)
    seen = []

    def run(num_rows, pieces):
        lengths = dict.fromkeys(range(num_rows), 1) | {piece.slot: len(piece.token_ids) for piece in pieces}
        for slot, length in lengths.items():
            room = BLOCK_TOKENS * len(runner.pool.tables[slot])
            assert 0 <= room - int(slots.past_lengths[slot]) - length < BLOCK_TOKENS
        seen.append((num_rows, len(pieces)))
        return PagedRunner.run(runner, num_rows, pieces)

    runner.run = run
    verify_paged(runner, slots, toy.manifest)
    assert num_runs == len(set(seen))
    assert ([0] * num_slots, 40) == (slots.past_lengths.tolist(), runner.pool.num_free)


def test_a_row_that_is_forked_shares_its_full_blocks(toy):
    """The block that is written next is copied. So each writes what it writes alone."""
    slots = Slots(4, MAX_TOTAL)
    runner = PagedRunner(toy.manifest, toy.session, slots, 40)
    for slot, past in enumerate((9, 8)):
        slots.past_lengths[slot] = past
        runner.grow(slot, past + 1)
    runner.fork(np.array([0, 1]), np.array([2, 3]), np.zeros(2, int), np.array([9, 8]))
    tables = [list(table) for table in runner.pool.tables]
    assert tables[0][:2] == tables[2][:2]
    assert tables[1][:2] == tables[3]
    assert 3 == len(tables[2])
    assert tables[0][2] != tables[2][2]
    assert [tables[2], [*tables[3], 0]] == runner.table[2:, :3].tolist()
