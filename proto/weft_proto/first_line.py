"""What an exception says, in one line."""


def first_line(error: BaseException) -> str:
    """What an exception says, in one line. If it says nothing, its kind."""
    return next(iter(str(error).splitlines()), type(error).__name__)
