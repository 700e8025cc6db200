"""Changes the product in small ways, one at a time, and asks the tests that are nearest whether they notice.

It works in a copy of the checkout, below build/mutants, so you may go on editing. What it has found it need not find
again: a run that was stopped goes on where it was.
"""

import argparse
import json
import os
import time

from draw import all_of, draw
from parts import FOLDERS, ROOT
from ran import Ran
from table import table
from tree import copied
from trying import Trying
from who import who

BUILD = ROOT / "build" / "mutants"


def _options():
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=350, help="of all parts together")
    parser.add_argument("--part", action="append", choices=FOLDERS, help="may be given several times; default: all")
    parser.add_argument("--lines", nargs="+", help="FILE:NUMBER ...: instead of a draw, all that can be changed there")
    parser.add_argument("--again", action="store_true", help="ask once more for what was not killed")
    parser.add_argument("--report", action="store_true", help="print what was found, and ask nobody")
    return parser.parse_args()


def main():
    """Try each mutant that is drawn, and print the table."""
    options = _options()
    parts = options.part or list(FOLDERS)
    if options.lines:
        mutants = [mutant for line in options.lines for mutant in all_of(line)]
    else:
        mutants = draw(options.seed, options.count, parts)
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "found.jsonl"
    found = _read(path) if path.exists() and not options.lines else {}
    if not options.report:
        known = {key for key, one in found.items() if not options.again or one["result"] == "killed"}
        found |= _tried([mutant for mutant in mutants if mutant.key not in known], path)
    print(table(mutants, found))


def _read(path):
    """What was found, by the mutants' keys: the last that is said of each."""
    lines = map(json.loads, path.read_text().splitlines())
    return {one["key"]: one for one in lines}


def _tried(mutants, path):
    trying = Trying(copied(BUILD / "tree"), BUILD / f"{os.getpid()}.log")
    ran = Ran(BUILD / "ran", trying.watched)
    ran.look({mutant.path for mutant in mutants})
    found = {}
    for number, mutant in enumerate(mutants, 1):
        begun = time.monotonic()
        result, by = trying.of(mutant, who(mutant, ran))
        seconds = round(time.monotonic() - begun, 1)
        found[mutant.key] = {"key": mutant.key, "result": result, "by": by, "seconds": seconds}
        with path.open("a") as lines:
            lines.write(json.dumps(found[mutant.key]) + "\n")
        changed = f"{mutant.place} {mutant.mutation.before} => {mutant.mutation.after}"
        print(f"{number:4} of {len(mutants)}: {result:9} {changed}", flush=True)
    return found


if __name__ == "__main__":
    main()
