"""Drafts of JSON Schema: which one a schema is of, and what they say differently.

2020-12 lets a schema inside another one be of another draft (section 8.1.1). Here all is read as one draft, that of the
top, and where another one is named, that is refused.
"""

from __future__ import annotations

from typing import Any

_2020 = "https://json-schema.org/draft/2020-12/schema"
_2019 = "https://json-schema.org/draft/2019-09/schema"
_4 = "http://json-schema.org/draft-04/schema"
_DRAFTS = frozenset(
    (_2020, _2019, "http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema", _4)
)


class Draft:
    """The draft that a whole schema is read as: what `$schema` says at its top, or 2020-12."""

    def __init__(self, root: Any) -> None:
        said = root.get("$schema") if isinstance(root, dict) else None
        # One that is unknown is refused where keywords are read.
        self._name = said.rstrip("#") if isinstance(said, str) else _2020
        self.is_newest = self._name == _2020
        # Whether minContains and maxContains are keywords.
        self.counts_contained = self._name in (_2020, _2019)
        self._id = "id" if self._name == _4 else "$id"

    def check(self, said: object) -> None:
        """Refuse a `$schema` that says another draft, or none. Raises ValueError."""
        if not isinstance(said, str) or said.rstrip("#") not in _DRAFTS:
            raise ValueError("it is none of 2020-12, 2019-09, draft-07, draft-06 and draft-04, by their addresses")
        if said.rstrip("#") != self._name:
            raise ValueError("it names another draft than the top of the schema, and a schema is read as one draft")

    def is_resource(self, schema: Any) -> bool:
        """Whether references below a schema mean something else than above: it has an address of its own."""
        return isinstance(schema, dict) and isinstance(schema.get(self._id), str)
