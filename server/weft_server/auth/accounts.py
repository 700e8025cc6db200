"""The accounts of the names that the tokens file has: what they used is known until the file has them no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.models.account import Account

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from weft_server.auth.tokens import Identity


class Accounts:
    """One account for each name. `of` is to be used on the event loop's thread."""

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        """`names` gives those of the file of now."""
        self._names = names
        self._accounts: dict[str, Account] = {}

    def of(self, identity: Identity) -> Account:
        """Return the account of somebody, at the rate that the file says now."""
        account = self._accounts.get(identity.name)
        if account is None:
            account = self._accounts.setdefault(identity.name, Account(identity.name))
        account.set_rate(identity.rate)
        return account

    def usage(self) -> list[tuple[str, str, dict[str, int]]]:
        """Return (name, model, metrics) of each name that the file has. May be asked from any thread."""
        names = self._names()
        for gone in [name for name in list(self._accounts) if name not in names]:
            self._accounts.pop(gone, None)
        return [(each.name, *row) for each in list(self._accounts.values()) for row in each.usage()]
