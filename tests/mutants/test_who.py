"""Which files of tests are asked of a mutant."""

from draw import all_of
from parts import ROOT
from who import who

PATH = "client/weft/_patience.py"
NAMED, SMALL, LARGE = (f"tests/client/test_{name}.py" for name in ("patience", "many", "verbs"))


class _Ran:
    """As Ran: three files run the line, and all load the module."""

    def __init__(self, line):
        self._line = line

    def lines(self, test, path):
        return [1, self._line] if path == PATH and test in {NAMED, SMALL, LARGE} else [1]

    def size(self, test):
        return {SMALL: 10, LARGE: 20}.get(test, 30)


def test_those_that_run_the_line_are_asked_and_the_nearest_first():
    """Named for the module, then the one that runs least. Who imports the module and never comes there is not asked."""
    line = 1 + (ROOT / PATH).read_text().partition("if pause > self.left_s")[0].count("\n")
    assert [NAMED, SMALL, LARGE] == who(all_of(f"{PATH}:{line}")[0], _Ran(line))
