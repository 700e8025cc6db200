"""The page of the API says what the code does."""

import sys
from pathlib import Path

import weft

sys.path.insert(0, str(Path(__file__).parent))
import api_page


def test_the_page_is_fresh():
    """It is what its maker writes: `python tests/client/api_page.py` makes it again."""
    assert api_page.page() == api_page.PAGE.read_text("utf-8")


def test_every_public_name_is_on_it():
    """Each name of `weft.__all__`, once."""
    listed = [name for names in api_page.GROUPS.values() for name in names]
    assert sorted({*weft.__all__, *api_page.ALIASES, "Options", "WritingOptions"} - {"__version__"}) == sorted(listed)
