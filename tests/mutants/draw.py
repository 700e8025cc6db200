"""Which mutants are tried: evenly over the parts, and within a part over its files. Equal seeds draw equally."""

import ast
import random
from pathlib import Path
from typing import NamedTuple

from operators import WEIGHTS, Mutation, mutations_of
from parts import FOLDERS, ROOT


class Mutant(NamedTuple):
    """A file with one change: `number` is the change's in mutations_of. Lines are of the file as it is."""

    part: str
    path: str
    number: int
    mutation: Mutation

    @property
    def key(self) -> str:
        """What names it, also when lines above it have come or gone."""
        mutation = self.mutation
        return f"{self.path}: {mutation.within}: {mutation.before} => {mutation.after}"

    @property
    def place(self) -> str:
        """Where it is now, for people."""
        return f"{self.path}:{self.mutation.lines.start}"


def all_of(line: str) -> list[Mutant]:
    """All mutants of a line, which is given as FILE:NUMBER."""
    name, _, number = line.rpartition(":")
    path = Path(name).resolve()
    (part,) = (part for part, folder in FOLDERS.items() if path.is_relative_to(folder))
    mutants = _of_file(random.Random(0), part, path)
    return [mutant for mutant in mutants if int(number) == mutant.mutation.lines.start]


def draw(seed: int, count: int, parts: list[str]) -> list[Mutant]:
    """So many mutants together, each once, in an order of their own: the first ten are of all parts."""
    drawn = [_of_part(random.Random(f"{seed} {part}"), part) for part in parts]
    share = -(-count // len(parts))
    turns = zip(*(mutants[:share] for mutants in drawn), strict=False)
    return [mutant for turn in turns for mutant in turn][:count]


def _of_part(rng: random.Random, part: str) -> list[Mutant]:
    """All mutants of a part: one of each file, then a second one of each, and so on."""
    paths = sorted(FOLDERS[part].rglob("*.py"))
    rng.shuffle(paths)
    piles = [_of_file(rng, part, path) for path in paths]
    turns = max(map(len, piles))
    return [pile[turn] for turn in range(turns) for pile in piles if turn < len(pile)]


def _of_file(rng: random.Random, part: str, path: Path) -> list[Mutant]:
    """All mutants of a file, in a drawn order: kinds by their weights, and one of a line before a second one of it."""
    mutations = mutations_of(ast.parse(path.read_bytes()))
    # Efraimidis and Spirakis, 2006: sorted so, the first n are a weighted sample without replacement.
    keys = [rng.random() ** (1 / WEIGHTS[each.kind]) for each in mutations]
    order = sorted(range(len(mutations)), key=lambda index: -keys[index])
    seen: dict[int, int] = {}
    rounds = []
    for index in order:
        line = mutations[index].lines.start
        rounds.append(seen.setdefault(line, 0))
        seen[line] += 1
    order = [index for _, index in sorted(zip(rounds, order, strict=True), key=lambda pair: pair[0])]
    return [Mutant(part, str(path.relative_to(ROOT)), index, mutations[index]) for index in order]
