"""Messages as bytes, field by field: what no library of protobuf would write, too."""

from google.protobuf.descriptor import FieldDescriptor

# What is written in as many bytes whatever it is, and what stands before it.
_FIXED = {FieldDescriptor.TYPE_FLOAT: (5, 4), FieldDescriptor.TYPE_DOUBLE: (1, 8)}
_SIZED = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE}


def varint(number):
    """A number, seven bits a byte."""
    written = b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def sized(number, body):
    """A field that says how long it is: a text, a message, or packed numbers."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def shortest(field):
    """A field with the shortest value that it can have."""
    if field.type in _SIZED:
        return sized(field.number, b"")
    kind, width = _FIXED.get(field.type, (0, 1))
    return varint(field.number << 3 | kind) + bytes(width)


def times(field, count):
    """A field as often as that. Many numbers are packed."""
    if field.is_repeated and field.type not in _SIZED:
        _, width = _FIXED.get(field.type, (0, 1))
        return sized(field.number, bytes(count * width))
    return shortest(field) * count


def inside(around, body):
    """A message within fields, outermost first."""
    for field in reversed(around):
        body = sized(field.number, body)
    return body


def places(message, around=()):
    """Each field of a message and of those inside, with the fields around it."""
    for field in message.fields:
        yield around, field
        if field.message_type:
            yield from places(field.message_type, (*around, field))


def path(*fields):
    """The name of the first of a field, as a refusal has it."""
    *around, last = fields
    return ".".join([*(f"{each.name}[0]" if each.is_repeated else each.name for each in around), last.name])
