"""The table of a run."""

import tomllib
from collections import Counter
from pathlib import Path

from draw import Mutant
from parts import FOLDERS

_EXPLAINED = Path(__file__).with_name("equivalent.toml")
_COLUMNS = ("killed", "timed out", "equivalent", "survived", "no test")


def table(mutants: list[Mutant], found: dict[str, dict]) -> str:
    """Lines of Markdown: a row for each part, then those that nobody has killed or explained."""
    explained = tomllib.loads(_EXPLAINED.read_text()) if _EXPLAINED.exists() else {}
    counts: dict[str, Counter] = {part: Counter() for part in FOLDERS}
    left = []
    for mutant in mutants:
        if one := found.get(mutant.key):
            result = one["result"]
            if result in {"survived", "no test"} and mutant.key in explained:
                result = "equivalent"
            counts[mutant.part][result] += 1
            if result in {"survived", "no test"}:
                left.append(f"- {result}: {mutant.place} `{mutant.mutation.before}` => `{mutant.mutation.after}`")
    counts["all"] = sum(counts.values(), Counter())
    rows = ["| part | " + " | ".join(_COLUMNS) + " | killed of those that can be |", "|---" * (len(_COLUMNS) + 2) + "|"]
    for part, count in counts.items():
        noticed = count["killed"] + count["timed out"]
        of = noticed + count["survived"] + count["no test"]
        share = f"{noticed / of:.1%}" if of else ""
        rows.append(f"| {part} | " + " | ".join(str(count[name]) for name in _COLUMNS) + f" | {share} |")
    return "\n".join([*rows, "", *left])
