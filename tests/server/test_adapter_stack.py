"""The law of the stack: whatever rows a run has, each reads its own adapter, and one that has none reads nothing."""

from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_proto.v1 import bundle_pb2
from weft_server.runtime.adapter_stack import NONE, AdapterStack, grouped
from weft_server.sequence import Adapter

SPEC = bundle_pb2.AdapterSpec(layers=[bundle_pb2.AdaptedLayer(name="x", inputs=3, outputs=2, rank=4)])


def adapter(value, rank=2):
    """An adapter whose numbers are all the same."""
    pair = np.full((3, rank), value, np.float32), np.full((rank, 2), value, np.float32)
    return Adapter(str(value), str(value), {"x": pair})


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=12), st.integers(1, 3))
def test_each_row_is_once_in_the_group_of_its_place(places, seq):
    """A row with an adapter stands where `adapter_places` says, in its place's group; one without stands nowhere."""
    start, stop, (members, rows, found) = grouped(np.array(places), seq)
    assert [row for row, place in enumerate(places) if place >= 0] == rows.tolist()
    assert members.shape[0] == stop - start
    assert rows.tolist() == members.ravel()[found].tolist()
    assert [places[row] - start for row in rows] == (found // members.shape[1]).tolist()
    assert len(set(found.tolist())) == len(found)


@pytest.mark.parametrize(("seq", "least"), [(1, 2), (2, 1)])
def test_a_lone_row_of_one_position_has_company(seq, least):
    """A group multiplies two rows or more: one alone has other bits."""
    members = grouped(np.array([0]), seq)[2][0]
    assert (1, least) == members.shape


def test_no_adapter_is_no_group():
    """Where no row has an adapter, nothing is multiplied."""
    stack = AdapterStack(SPEC, 2)
    fed = stack.feeds(["adapter_members", "adapter.x.a", "input_ids"], np.array([NONE, NONE]), 1)
    assert {"adapter_members": (0, 2), "adapter.x.a": (0, 3, 4)} == {name: array.shape for name, array in fed.items()}


def test_a_place_is_shared_and_then_used_again():
    """Rows with one adapter share its place. When the last has gone, another one takes it, and nothing is left over."""
    stack = AdapterStack(SPEC, 2)
    one, two, three = adapter(1, rank=4), adapter(2), adapter(3, rank=1)
    assert [0, 0, 1, NONE] == [stack.take(each) for each in (one, one, two, None)]
    stack.let_go(0)
    assert 0 == stack.take(one)
    stack.let_go(0)
    stack.let_go(0)
    assert 0 == stack.take(three)
    fed = stack.feeds(["adapter.x.a", "adapter.x.b"], np.array([0, 1]), 1)
    assert [3, 0, 0, 0] == fed["adapter.x.a"][0, 0].tolist()
    assert [2, 2, 0, 0] == fed["adapter.x.b"][1, :, 0].tolist()


def test_an_adapter_that_has_left_the_memory_is_not_kept():
    """Its place is only what was copied."""
    stack = AdapterStack(SPEC, 2)
    one = adapter(1)
    stack.let_go(stack.take(one))
    left = ref(one)
    del one
    assert left() is None
    assert 0 == stack.take(adapter(2))


def test_an_adapter_comes_back_to_where_it_lay():
    """What nobody has overwritten is not copied again, unless a lower place is free."""
    stack = AdapterStack(SPEC, 3)
    one, two = adapter(1), adapter(2)
    stack.take(one)
    assert 1 == stack.take(two)
    stack.let_go(1)
    assert 1 == stack.take(two)
    stack.let_go(0)
    stack.let_go(1)
    assert 0 == stack.take(two)
