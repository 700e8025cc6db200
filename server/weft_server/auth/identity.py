"""Who calls: a name, and the roles that say what it may call."""

from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """What somebody may do: ask models, ask them before others, change which there are, or read the metrics."""

    CALL = "call"
    HIGH = "high"
    ADMIN = "admin"
    METRICS = "metrics"


class Identity(NamedTuple):
    """Somebody who is known. The name is empty where nobody is asked."""

    name: str
    roles: frozenset[Role]


ANYONE = Identity("", frozenset(Role))
