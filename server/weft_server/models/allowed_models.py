"""Which models a caller may ask: all, or those that its line of the tokens file names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.errors import ModelNotAllowed

if TYPE_CHECKING:
    from collections.abc import Collection


class AllowedModels:
    """Names as OpenAI's API spells them: `a` is the model alone, and `a:b` the model with its adapter."""

    def __init__(self, names: Collection[str] | None) -> None:
        """Without names, all are allowed."""
        self._names = None if names is None else frozenset(names)
        # A model is told of too if one of its adapters is allowed.
        self._shown = {name.partition(":")[0] for name in names or ()}

    def allows(self, name: str, adapter: str = "") -> bool:
        """Whether a model may be asked, with an adapter if one is named."""
        return self._names is None or (f"{name}:{adapter}" if adapter else name) in self._names

    def shows(self, name: str) -> bool:
        """Whether a model may be told of."""
        return self._names is None or name in self._shown

    def check(self, name: str, adapter: str = "") -> None:
        """Raise ModelNotAllowed if a model may not be asked, whether or not there is one."""
        if not self.allows(name, adapter):
            raise ModelNotAllowed(f"{name}:{adapter}" if adapter else name)

    def check_shown(self, name: str) -> None:
        """Raise ModelNotAllowed if a model may not be told of."""
        if not self.shows(name):
            raise ModelNotAllowed(name)


ALL_MODELS = AllowedModels(None)
