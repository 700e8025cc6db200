"""Changes the product in small ways, one at a time, and asks the tests of the changed line whether they notice.

It works in a copy of the checkout, below build/mutants, so you may go on editing. What it has found it need not find
again: a run that was stopped goes on where it was. What is in the copy when the tests are recorded stays in it:
`--fresh` begins anew.
"""

import argparse
import json
import time

from asking import Asking
from draw import all_of, draw
from parts import FOLDERS, ROOT
from report import report
from tree import copied
from who import Who

BUILD = ROOT / "build" / "mutants"
_OPEN = ("survived", "timed out", "no test")


def _options():
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=350, help="of all parts together")
    parser.add_argument("--part", action="append", choices=FOLDERS, help="may be given several times; default: all")
    parser.add_argument("--fresh", action="store_true", help="copy the checkout, and record who runs which line, anew")
    parser.add_argument("--again", action="store_true", help="copy the tests anew, and ask for what is not killed yet")
    parser.add_argument("--record", nargs="+", default=[], help="files of tests to record besides: new ones")
    parser.add_argument("--line", help="FILE:NUMBER: instead of a draw, all that can be changed there")
    parser.add_argument("--list", action="store_true", help="print what is drawn, and ask nobody")
    return parser.parse_args()


def main():
    """Try each mutant that is drawn, and print the table."""
    options = _options()
    parts = options.part or list(FOLDERS)
    mutants = all_of(options.line) if options.line else draw(options.seed, options.count, parts)
    if options.list:
        for mutant in mutants:
            print(mutant.place, mutant.mutation.kind, mutant.mutation.before, "=>", mutant.mutation.after)
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / ("line.json" if options.line else f"seed-{options.seed}.json")
    found = json.loads(path.read_text()) if path.exists() and not options.line else {}
    tree = copied(BUILD / "tree", anew=options.fresh, with_tests=options.again or options.record)
    who = Who(BUILD / "record", tree, anew=options.fresh, more=options.record)
    asking = Asking(tree, BUILD / "last.log")
    for number, mutant in enumerate(mutants, 1):
        before = found.get(mutant.key)
        if before and not (options.again and before["result"] in _OPEN):
            continue
        begun = time.monotonic()
        result, by = asking.of(mutant, who.run(mutant))
        found[mutant.key] = {"result": result, "by": by, "seconds": round(time.monotonic() - begun, 1)}
        path.write_text(json.dumps(found, indent=1))
        print(f"{number:4} {result:9} {mutant.place} {mutant.mutation.before} => {mutant.mutation.after}", flush=True)
    print(report(mutants, found))


if __name__ == "__main__":
    main()
