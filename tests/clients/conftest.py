"""What the tests of pages share."""

import pytest

from driven_page import DrivenPage


@pytest.fixture(scope="module")
def page():
    """A browser. Each test opens a page of its own."""
    with DrivenPage() as page:
        yield page
