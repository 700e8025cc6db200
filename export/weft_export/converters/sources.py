"""Where a weight of ours comes from: one tensor of theirs, or several put together.

A table of names maps each of our weights to a source. `{}` stands for the number of a layer in both, for example

    "layers.{}.attention.qkv.weight": rows("model.layers.{}.self_attn.{q,k,v}_proj.weight")

A name alone is the tensor as it is. It stays in its mapped file; all else is made in memory.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weft_export.errors import CheckpointError


@dataclass(frozen=True)
class Source:
    """Tensors of theirs, and what makes ours of them.

    names: theirs, in the order that make takes them.
    make: from their tensors to ours. None: the one tensor as it is.
    optional: those that a file may lack. make then gets None in their place.
    needs_one: of all names a file must have one at least. They are the same weight.
    """

    names: tuple[str, ...]
    make: Callable[..., Tensor] | None = None
    optional: frozenset[str] = frozenset()
    needs_one: bool = False

    def at(self, numbers: Sequence[str]) -> "Source":
        """Return the source with the numbers of layers in its names."""
        filled = {name: _filled(name, numbers) for name in self.names}
        return replace(self, names=tuple(filled.values()), optional=frozenset(filled[name] for name in self.optional))


Names = Mapping[str, Source | str]
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def source_of(table: Names, ours: str) -> Source:
    """Return the source of a weight of ours.

    Raises:
        CheckpointError: the table has none. This is a fault of ours.
    """
    for pattern, numbers in ((ours, ()), (_NUMBER.sub("{}", ours), _NUMBER.findall(ours))):
        found = table.get(pattern)
        if found is not None:
            return (Source((found,)) if isinstance(found, str) else found).at(numbers)
    raise CheckpointError(f"no table says where the weight {ours} comes from. This is a bug.")


def rows(*patterns: str) -> Source:
    """Put tensors below each other. `{q,k,v}` in a name stands for one name with each of these."""
    names = tuple(name for pattern in patterns for name in _spelled(pattern))
    return Source(names, _concatenated)


def transposed(name: str) -> Source:
    """Turn a matrix that is stored as [in, out], as GPT-2 has them."""
    return Source((name,), lambda matrix: matrix.t().contiguous())


def computed(make: Callable[..., Tensor], *names: str, optional: Sequence[str] = ()) -> Source:
    """Make ours of theirs by a function."""
    return Source(names, make, frozenset(optional))


def half(index: int, name: str) -> Source:
    """Take the upper rows of a tensor (index 0), or the lower ones (1)."""
    return Source((name,), lambda tensor: tensor.chunk(2)[index])


def from_row(first: int, name: str, count: int) -> Source:
    """Take `count` rows of a table from row `first` on. Positions of BART and OPT begin at row 2."""
    return Source((name,), lambda table: table[first : first + count])


def first_of(*names: str) -> Source:
    """Take the first of several names that a file has. Tied weights are saved under one of theirs, or under all."""
    return Source(
        names, lambda *parts: next(part for part in parts if part is not None), frozenset(names), needs_one=True
    )


def tied(*names: str, instead: Sequence[str] = ()) -> Source:
    """Take one table that a file may hold under several names. Where it is there twice and differs, refuse it.

    instead: names that are taken only where the file has none of the others.
    """

    def make(*parts: Tensor | None) -> Tensor:
        there = [part for part in parts[: len(names)] if part is not None]
        there = there or [part for part in parts[len(names) :] if part is not None][:1]
        if any(not part.is_meta and not torch.equal(there[0], part) for part in there[1:]):
            raise CheckpointError(
                f"{' and '.join(names)} differ in the files, and config.json says that they are tied; set"
                " tie_word_embeddings to false if that is meant"
            )
        return there[0]

    every = (*names, *instead)
    return Source(every, make, frozenset(every), needs_one=True)


def first_rows(count: int, make: Callable[[], Tensor], *stored: str) -> Source:
    """Take the first rows of a table that follows from the config; where a file stores it, of the stored one."""

    def rows_of(*parts: Tensor | None) -> Tensor:
        there = next((part for part in parts if part is not None), None)
        return (make() if there is None else there)[:count]

    return Source(stored, rows_of, frozenset(stored))


def layer_names(table: Names, ours: str, theirs: str) -> dict[str, Source | str]:
    """Return a table with prefixes: ours before our names, theirs before theirs."""
    put = renamed(table, lambda name: theirs + name)
    return {ours + name: source for name, source in put.items()}


def renamed(table: Names, theirs: Callable[[str], str]) -> dict[str, Source | str]:
    """Return a table with other names of theirs."""

    def put(source: Source | str) -> Source | str:
        if isinstance(source, str):
            return theirs(source)
        return replace(source, names=tuple(map(theirs, source.names)), optional=frozenset(map(theirs, source.optional)))

    return {name: put(source) for name, source in table.items()}


def both(ours: str, theirs: str, *parts: str) -> dict[str, Source | str]:
    """Return the weight and the bias of a layer that only changes its name."""
    return {f"{ours}.{part}": f"{theirs}.{part}" for part in parts or ("weight", "bias")}


def norm(ours: str, theirs: str) -> Names:
    """Return a LayerNorm's weight and bias. Old files call them gamma and beta."""
    return {
        f"{ours}.weight": first_of(f"{theirs}.weight", f"{theirs}.gamma"),
        f"{ours}.bias": first_of(f"{theirs}.bias", f"{theirs}.beta"),
    }


def both_rows(ours: str, *patterns: str) -> dict[str, Source | str]:
    """Return the weight and the bias of several layers below each other."""
    return {f"{ours}.{part}": rows(*(f"{pattern}.{part}" for pattern in patterns)) for part in ("weight", "bias")}


def _concatenated(*parts: Tensor) -> Tensor:
    return torch.cat(parts)


def _spelled(pattern: str) -> list[str]:
    found = re.search(r"\{(\w+(?:,\w+)+)\}", pattern)
    if found is None:
        return [pattern]
    return [pattern[: found.start()] + word + pattern[found.end() :] for word in found[1].split(",")]


def _filled(name: str, numbers: Sequence[str]) -> str:
    for number in numbers:
        name = name.replace("{}", number, 1)
    return name


def with_zero_keys(query: str, value: str) -> Source:
    """Return the bias of queries, keys and values, of which keys have none."""
    return computed(lambda q, v: torch.cat((q, torch.zeros_like(q), v)), query, value)
