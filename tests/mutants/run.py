"""Changes the product in small ways, one at a time, and asks the tests of the changed line whether they notice.

It works in a copy of the checkout, below build/mutants, so you may go on editing. What it has found it need not find
again: a run that was stopped goes on where it was.
"""

import argparse
import json
import time
from pathlib import Path

from asking import Asking
from draw import draw
from parts import FOLDERS, ROOT
from report import report
from tree import copied
from who import Who

BUILD = ROOT / "build" / "mutants"


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=350)
    parser.add_argument("--part", action="append", choices=FOLDERS, help="may be given several times; default: all")
    parser.add_argument("--again", action="store_true", help="ask once more for those that survived or timed out")
    parser.add_argument("--fresh", action="store_true", help="copy the checkout and record the tests anew")
    parser.add_argument("--no-record", action="store_true", help="ask whom the last record names, in a new copy")
    return parser.parse_args()


def main():
    """Try each mutant that is drawn, and print the table."""
    options = _options()
    tree = copied(BUILD / "tree", anew=options.fresh or options.no_record or options.again)
    who = Who(BUILD / "record", tree, anew=options.fresh)
    mutants = draw(options.seed, options.count, options.part or list(FOLDERS))
    path = BUILD / f"seed-{options.seed}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    with Asking(tree, BUILD / "last.log") as asking:
        for number, mutant in enumerate(mutants):
            before = found.get(mutant.key)
            if before and not (options.again and before["result"] in {"survived", "timed out", "no test"}):
                continue
            begun = time.monotonic()
            result, by = asking.of(mutant, who.run(mutant))
            found[mutant.key] = {
                **{"part": mutant.part, "path": mutant.path, "line": mutant.mutation.first_line},
                **{"kind": mutant.mutation.kind, "before": mutant.mutation.before, "after": mutant.mutation.after},
                **{"result": result, "by": by, "seconds": round(time.monotonic() - begun, 1)},
            }
            path.write_text(json.dumps(found, indent=1))
            print(f"{number + 1:4} {result:9} {mutant.path}:{mutant.mutation.first_line} {mutant.mutation.before}", flush=True)
    print(report(mutants, found))


if __name__ == "__main__":
    main()
