"""What every family demands of its sizes."""


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


def require_among(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
