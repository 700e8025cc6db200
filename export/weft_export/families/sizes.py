"""What every family demands of its sizes."""

import math


def require_positive(**sizes: int) -> None:
    """Raise ValueError naming the first size that is not at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {size!r}")


def require_divisible(what: str, number: int, by: str, divisor: int) -> None:
    """Raise ValueError unless divisor divides number."""
    if number % divisor:
        raise ValueError(f"{what} ({number}) must be a multiple of {by} ({divisor})")


def require_fraction(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value < 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), not {value!r}")


def require_above_zero(**values: float) -> None:
    """Raise ValueError naming the first value that is not a finite number above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{name} must be above 0, not {value!r}")


def require_bool(**flags: bool) -> None:
    """Raise ValueError naming the first flag that is neither true nor false."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{name} must be true or false, not {flag!r}")  # noqa: TRY004 - as every size that is wrong


def require_among(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
