"""The clients that block are made of those for asyncio."""

import pytest

import sync_client
import weft


def test_the_blocking_clients_are_fresh():
    """`_sync/` holds what `make sync` writes, and no other file."""
    made = sync_client.pages()
    assert made == {page: page.read_text("utf-8") for page in made}
    assert {*made, sync_client.CLIENT / "_sync" / "__init__.py"} == {*(sync_client.CLIENT / "_sync").glob("*.py")}


@pytest.mark.parametrize("name", sorted(sync_client.DOCS))
def test_what_a_class_says_for_itself_stands_there(name):
    """The words of the table are the class's."""
    assert sync_client.DOCS[name].strip() == getattr(weft, name).__doc__.strip()
