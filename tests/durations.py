"""Writes durations.tsv: `python tests/durations.py REPORT`, with what `pytest --junitxml` wrote of a whole run.

A line is a test function that took half a second or more, all its cases together: seconds, a tab, its name.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

FILE = Path(__file__).with_suffix(".tsv")


def main(report):
    """Write the file."""
    seconds = Counter()
    for case in ET.parse(report).iter("testcase"):
        path = case.get("classname").replace(".", "/") + ".py"
        seconds[f"{path}::{case.get('name').partition('[')[0]}"] += float(case.get("time"))
    rows = sorted((-taken, name) for name, taken in seconds.items() if taken >= 0.5)
    FILE.write_text("".join(f"{-taken:.1f}\t{name}\n" for taken, name in rows))


if __name__ == "__main__":
    main(sys.argv[1])
