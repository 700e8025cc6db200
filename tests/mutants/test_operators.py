"""What the mutation tool changes, and what it leaves alone."""

import ast
import tomllib
from pathlib import Path

import pytest
from draw import draw
from operators import mutations_of
from parts import FOLDERS, ROOT

EXPLAINED = Path(__file__).with_name("equivalent.toml")
PARTS = ["bundle", "sampling"]
SOURCE = '''
LIMIT = 5


class Counter:
    """Counts."""

    def __init__(self):
        self.num = 0
        self.start()

    def add(self, many: int) -> int:
        """Add."""
        assert many > 1, "This is a bug."
        _log.debug("added", many=many)
        failpoints.reached("add")
        if many < 3 and self.num:
            raise ValueError(f"{many + 1}")
        try:
            self.num += max(many, 2)
        except OSError:
            return True
        finally:
            self.end()
        return many
'''


def _changes(source):
    return [(each.kind, each.before, each.after) for each in mutations_of(ast.parse(source))]


def test_each_kind_is_found_where_it_is():
    """Calls, raises, counts, conditions, boundaries, limits, numbers, what is returned and what cleans up."""
    assert sorted(_changes(SOURCE)) == sorted(
        [
            ("statement", "self.start()", "-"),
            ("condition", "many < 3 and self.num", "turned round"),
            ("boolean", "many < 3 and self.num", "many < 3 or self.num"),
            ("comparison", "many < 3", "many <= 3"),
            ("constant", "3", "4"),
            ("statement", "raise ValueError(f'{many + 1}')", "-"),
            ("cleanup", "except OSError:", "raise"),
            ("statement", "self.num += max(many, 2)", "-"),
            ("arithmetic", "self.num += max(many, 2)", "self.num -= max(many, 2)"),
            ("limit", "max(many, 2)", "min(many, 2)"),
            ("constant", "2", "3"),
            ("constant", "True", "False"),
            ("return", "return True", "return None"),
            ("statement", "self.end()", "-"),
            ("return", "return many", "return None"),
            ("constant", "0", "1"),
        ]
    )


def test_each_change_is_made_alone():
    """It gives another program that compiles, in which all else is as it was."""
    plain, seen = ast.unparse(ast.parse(SOURCE)), set()
    for number in range(len(_changes(SOURCE))):
        tree = ast.parse(SOURCE)
        mutations_of(tree)[number].apply()
        compile(ast.fix_missing_locations(tree), "source", "exec")
        assert plain != ast.unparse(tree)
        seen.add(ast.unparse(tree))
    assert len(_changes(SOURCE)) == len(seen)


def test_equal_seeds_draw_equally_and_evenly():
    """Each part gives as many, and a larger count goes on where a smaller one ends."""

    def drawn(seed, count):
        return draw(seed, count, PARTS)

    few, more = drawn(3, 20), drawn(3, 50)
    assert [each.key for each in few] == [each.key for each in drawn(3, 20)] == [each.key for each in more[:20]]
    assert {25} == {[each.part for each in more].count(part) for part in PARTS}
    assert [each.key for each in few] != [each.key for each in drawn(4, 20)]


def test_each_part_has_files():
    """A folder that was renamed would be passed over."""
    assert all(any(folder.rglob("*.py")) for folder in FOLDERS.values())


@pytest.mark.parametrize("key", tomllib.loads(EXPLAINED.read_text()))
def test_what_is_explained_is_there(key):
    """A line that was changed or moved is explained anew."""
    path = key.partition(":")[0]
    changes = mutations_of(ast.parse((ROOT / path).read_bytes()))
    assert key in {f"{path}: {change.within}: {change.before} => {change.after}" for change in changes}
