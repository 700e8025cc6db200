"""The tables of methods say what the contracts say, and no more of them than there are."""

import pytest

from intercepted import methods
from weft_proto.inference.methods import METHOD_AT
from weft_proto.v1 import methods as weft_v1
from weft_proto.v1.methods import METHODS, streaming


def test_the_tables_have_every_method_of_the_contracts():
    """By a name that no other has, with its own messages."""
    assert methods() == {path: method.request.DESCRIPTOR for path, method in METHOD_AT.items()}
    assert len(weft_v1.METHOD_AT) == len(METHODS)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.streams])
def test_a_stream_is_the_twin_of_a_unary_method(name):
    """Its request holds the unary one, its last message the unary response. It is for the same models."""
    unary, twin = METHODS[name.removeprefix("Stream")], METHODS[name]

    assert twin is streaming(unary.name)
    assert unary.request.DESCRIPTOR is twin.request.DESCRIPTOR.fields_by_name["request"].message_type
    assert unary.response.DESCRIPTOR is twin.response.DESCRIPTOR.fields_by_name["final"].message_type
    assert (unary.service, unary.tasks, unary.streams) == (twin.service, twin.tasks, False)
