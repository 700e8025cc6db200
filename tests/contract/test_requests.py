"""What a request may hold: data, never a place where the server should look for it."""

from intercepted import methods

# Words for places, in a field's name.
PLACES = {"url", "uri", "path", "file", "filename", "folder", "directory", "host", "address", "endpoint"}


def fields(message, seen):
    """Every field of a message and of those in it."""
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        yield field
        if field.message_type:
            yield from fields(field.message_type, seen)


def test_no_request_names_a_place():
    """No field of any request is a path or an address: a server that fetches what callers name can be made to spy."""
    seen = set()
    names = [field.full_name for kind in methods().values() for field in fields(kind, seen)]

    assert "weft.v1.Image.data" in names
    assert [] == [name for name in names if PLACES & set(name.rpartition(".")[2].split("_"))]
