"""What a server says arrives: each field of its messages has a place in the SDK's answers."""

import pytest
from google.protobuf.descriptor import FieldDescriptor

from weft import _answers
from weft._verbs.table import VERBS
from weft_proto.v1 import model_pb2

READERS = {verb.path: (verb.response, verb.read) for verb in VERBS} | {"Model": (model_pb2.Model, _answers.model)}
TEXTS = {FieldDescriptor.TYPE_STRING: "a", FieldDescriptor.TYPE_BYTES: b"a"}


def say(message, field):
    """Let a field say what it does not by default, and all fields within it."""
    value = getattr(message, field.name)
    if hasattr(value, "add"):
        say_all(value.add())
    elif field.message_type is not None:
        value.SetInParent()
        say_all(value)
    elif hasattr(value, "extend"):
        value.append(TEXTS.get(field.type, 1))
    else:
        setattr(message, field.name, TEXTS.get(field.type, 1))


def say_all(message):
    """Let each field say something. Of those that exclude each other the last one does."""
    for field in message.DESCRIPTOR.fields:
        say(message, field)
    return message


def paths(message, within=()):
    """Yield the fields of a message, and of those within, by their names."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and not hasattr(value, "add"):
            yield from paths(value, (*within, field.name))
        else:
            yield (*within, field.name)


def at(message, path):
    """The message that a path's last field is in."""
    for name in path[:-1]:
        message = getattr(message, name)
    return message


@pytest.mark.parametrize("name", READERS)
def test_nothing_that_a_server_says_is_lost(name):
    """An answer is another one without a field of its message; of fields that exclude each other, with it alone."""
    kind, read = READERS[name]
    lost = []
    for path in paths(kind()):
        without, alone = say_all(kind()), kind()
        at(without, path).ClearField(path[-1])
        inner = at(alone, path)
        say(inner, inner.DESCRIPTOR.fields_by_name[path[-1]])
        if read(without) == read(say_all(kind())) and read(alone) == read(kind()):
            lost.append(".".join(path))
    assert [] == lost
