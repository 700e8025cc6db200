"""What a tokenizer may do to a text, beyond what its library holds it to: exporter and server both keep these rules.

A file is a program of steps. Thirty of them that each double a text would take a thousand gigabytes for a few words.
And over some expressions the library panics.
"""

import base64
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Step = Mapping[str, Any]

MAX_GROWTH = 8192
"""How many characters may come of one, at most. For our own tokenizer with the most replacements, 24, it is 5376."""
MAX_STEPS = 256
"""Of one part."""
# A text goes through the first two, one behind the other.
_PARTS = (("normalizer", "pre_tokenizer"), ("post_processor",), ("decoder",))
_INSIDE = ("normalizers", "pretokenizers", "processors", "decoders")
# How much longer a text becomes by other steps than those that put in a text of their own.
_LONGER = {"ByteLevel": 4, "BertNormalizer": 3, "Metaspace": 2}
# They make no character that was not there.
_MAKES_NONE = ("Strip", "Split", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "Fuse")
# Of long runs, because nested repetitions take for ever to fail on them.
_TRIED = ("", "a", "a b", "Don't, é 漢字 😀\r\n\t12", "a" * 64 + "!", " " * 64 + "a", "1" * 64 + "a", "?" * 64 + "a")


def tokenizer_fault(tokenizer: Any) -> str | None:
    """Say why a tokenizers.Tokenizer should not be used, or None."""
    for names in _PARTS:
        parts = [part for part in (getattr(tokenizer, name) for name in names) if part is not None]
        steps = [step for part in parts for step in _steps(json.loads(part.__getstate__()))]
        if len(steps) > MAX_STEPS:
            return f"its {names[0]} has {len(steps)} steps; {MAX_STEPS} are allowed"
        if (growth := growth_of(steps)) > MAX_GROWTH:
            return f"its {names[0]} may make {growth:.4g} characters of one; {MAX_GROWTH} are allowed"
    if getattr(tokenizer.model, "dropout", None):
        return "it drops merges at random, so that a text would not always get the same tokens"
    return _panic(tokenizer)


def growth_of(steps: Sequence[Step]) -> float:
    """Return how many characters may come of one at most, but for the forms of Unicode: 18 times as many.

    A replacement whose pattern needs a character that no step has put in takes one of the text, which is then gone. So
    of any number of such steps only the longest text counts. All others multiply what there is.
    """
    put_in: set[str] = set()
    longest, product, everything = 1, 1.0, False
    for step in steps:
        kind, text = step["type"], _apart(step.get("content") or step.get("prepend") or "")
        pattern = step["pattern"].get("String") if kind == "Replace" else None
        if pattern and not everything and not put_in.issuperset(pattern):
            longest = max(longest, len(text))
            if len(text) > len(pattern) or not put_in.isdisjoint(pattern):
                put_in.update(text)
            continue
        product *= max(1, len(text) / len(pattern)) if pattern else _longer(step, text)
        put_in.update(text)
        everything = everything or (kind not in ("Replace", "Prepend", *_MAKES_NONE) and (bool(put_in) or product > 1))
    return longest * product


def _steps(step: Step) -> Iterator[Step]:
    lists = [step[name] for name in _INSIDE if name in step]
    if not lists:
        yield step
    for each in (each for inner in lists for each in inner):
        yield from _steps(each)


def _longer(step: Step, text: str) -> int:
    """How many characters a step makes of one. An expression may match where there is none."""
    if step["type"] == "Precompiled":
        rules = base64.b64decode(step["precompiled_charsmap"])
        # All at once, in a third of the time: nothing moves past a zero.
        texts = _apart(rules[4 + int.from_bytes(rules[:4], "little") :].decode(errors="replace")).split("\0")
        return max(1, *map(len, texts))
    if step["type"] == "TemplateProcessing":
        return max(1, sum("Sequence" in piece for piece in step["single"]))
    return _LONGER.get(step["type"], 1 + len(text))


def _apart(text: str) -> str:
    """Return a text with all its characters taken apart, as a later step may do."""
    return unicodedata.normalize("NFKD", text)


def is_panic(error: BaseException) -> bool:
    """Whether it is a panic of the library, which is no Exception. The type has no name that could be imported."""
    return type(error).__name__ == "PanicException"


def _panic(tokenizer: Any) -> str | None:
    for text in _TRIED:
        try:
            tokenizer.encode(text)
        except Exception:  # noqa: BLE001, S112 - a word may be in no vocabulary; the library has no narrower type
            continue
        except BaseException as error:
            if not is_panic(error):
                raise
            return f"its library panics over it: {error}"
    return None
