"""Short notices in English with the people, places, dates, sums and amounts in them."""

import random
import re
from dataclasses import dataclass

from weft_recipes.texts import names
from weft_recipes.texts.docstrings import read_words
from weft_recipes.texts.templates import FILLERS, TEMPLATES, is_held_out

LABEL_OF = {"who": "PERSON", "where": "PLACE", "when": "DATE", "money": "MONEY", "amount": "QUANTITY"}
_ORDINARY = re.compile(r"(?<!')\b[A-Za-z]+\b")
_PLACE = re.compile(r"\{(\w+)\}")
_WORDS = {
    "month": "January February March April May June July August September October November December",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "number": "two three four five six seven eight nine ten twelve twenty forty",
    "currency": "euros dollars pounds kronor francs zloty yen pesos",
    "unit": "kg km litres kilometres grams tonnes metres miles percent % g ml cm boxes bottles hectares bags kilos",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """A text and what is in it: (label, start, end) in characters, in order."""

    text: str
    spans: tuple[tuple[str, int, int], ...]


class Notices:
    """Draws notices from one part of the templates and one part of the names.

    invented is the share of names that are put together from two names of any kind: how such a name looks does not tell
    what it names. strange is the share of a template's own words that are replaced by others, from the documentation of
    Python: not every word that was never seen is a name.
    """

    def __init__(
        self, seed: int, *, new_templates: bool, new_names: bool, invented: float = 0.0, strange: float = 0.0
    ) -> None:
        self._rng = random.Random(seed)  # noqa: S311  (notices, not secrets)
        self._templates = [template for template in TEMPLATES if is_held_out(template) == new_templates]
        self._given, self._family, self._towns, self._either = (
            names.part(part, held_out=new_names)
            for part in (names.GIVEN_NAMES, names.FAMILY_NAMES, names.TOWNS, names.EITHER)
        )
        self._invented, self._strange = invented, strange

    def draw(self) -> Notice:
        """Draw one to three sentences."""
        count = self._rng.choices((1, 2, 3), (6, 3, 1))[0]
        text, spans = "", []
        for _ in range(count):
            text += " " if text else ""
            for index, piece in enumerate(_PLACE.split(self._tidied(self._rng.choice(self._templates)))):
                words = self._fill(piece) if index % 2 else piece
                if piece not in LABEL_OF:
                    words = _ORDINARY.sub(self._replaced, words)
                # A sentence begins with a capital, unless a name begins it as it is.
                words = words[:1].upper() + words[1:] if not text or text.endswith((". ", "? ", "! ")) else words
                if index % 2 and piece in LABEL_OF:
                    spans.append((LABEL_OF[piece], len(text), len(text) + len(words)))
                text += words
        return Notice(text, tuple(spans))

    def _replaced(self, word: re.Match[str]) -> str:
        if self._rng.random() >= self._strange:
            return word[0]
        return self._rng.choice(read_words(2, 14))

    def _tidied(self, template: str) -> str:
        """Close up the punctuation that stands apart in a template."""
        return re.sub(r" (?=[.,?!:)]|'s)", "", template).replace("( ", "(")

    def _fill(self, kind: str) -> str:
        drawers = {
            "who": self._who,
            "where": self._where,
            "when": self._when,
            "money": self._money,
            "amount": self._amount,
        }
        return drawers[kind]() if kind in drawers else self._rng.choice(FILLERS[kind].split("|"))

    def _who(self) -> str:
        given = self._name(self._given if self._rng.random() < 0.85 else self._either)
        form = self._rng.random()
        if form < 0.35:
            return given
        family = self._name(self._family)
        if form < 0.85:
            return f"{given} {family}"
        return f"{given[0]}. {family}" if form < 0.92 else f"{given} {self._name(self._given)[0]}. {family}"

    def _where(self) -> str:
        town = self._name(self._towns if self._rng.random() < 0.8 else self._either)
        form = self._rng.random()
        if form < 0.8:
            return town
        return self._rng.choice(("New {}", "San {}", "{}-sur-Mer", "Lake {}", "Port {}", "{} Street")).format(town)

    def _name(self, part: tuple[str, ...]) -> str:
        if self._rng.random() >= self._invented:
            return self._rng.choice(part)
        first, second = (self._rng.choice(self._given + self._family + self._towns) for _ in range(2))
        return first[: self._rng.randint(1, 4)] + second[-self._rng.randint(2, 5) :].lower()

    def _when(self) -> str:
        rng = self._rng
        day, month, year = rng.randint(1, 28), self._word("month"), rng.randint(1900, 2039)
        forms = (
            f"{day} {month}",
            f"{day} {month} {year}",
            f"{month} {day}, {year}",
            f"{month} {year}",
            f"{year}",
            f"{year}-{rng.randint(1, 12):02}-{day:02}",
            f"{day:02}/{rng.randint(1, 12):02}/{year}",
            self._word("day"),
            f"{rng.choice(('next', 'last'))} {self._word('day')}",
            f"{self._word('day')}, {day} {month}",
            f"the {day}th of {month}",
        )
        return rng.choice(forms)

    def _money(self) -> str:
        rng = self._rng
        number, symbol, currency = self._number(), rng.choice("$€£"), self._word("currency")
        forms = (
            f"{symbol}{number}",
            f"{symbol}{rng.randint(1, 999)}.{rng.randint(0, 99):02}",
            f"{number} {currency}",
            f"{symbol}{rng.randint(2, 40)} million",
            f"{self._word('number')} {currency}",
            f"{rng.randint(2, 90)} cents",
        )
        return rng.choice(forms)

    def _amount(self) -> str:
        rng = self._rng
        unit = self._word("unit")
        forms = (
            f"{self._number()} {unit}",
            f"{rng.randint(1, 99)}.{rng.randint(1, 9)} {unit}",
            f"{self._word('number')} {unit}",
        )
        return rng.choice(forms)

    def _word(self, kind: str) -> str:
        return self._rng.choice(_WORDS[kind].split())

    def _number(self) -> str:
        return f"{self._rng.choice((self._rng.randint(2, 99), self._rng.randint(100, 9999))):,}"
