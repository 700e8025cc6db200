"""Whether somebody still waits for what a worker thread makes."""

import math
import time

from weft_server.errors import DeadlineExpired


class Wanted:
    """Made for a job, which asks it wherever it can stop, from its own thread."""

    def __init__(self, deadline: float = math.inf) -> None:
        """Wanted until `deadline`, in monotonic seconds, or until given up."""
        self._deadline = deadline
        self._given_up = False

    def give_up(self) -> None:
        """Nobody waits any more."""
        self._given_up = True

    def check(self) -> None:
        """Raise DeadlineExpired if nobody waits any more."""
        if self._given_up or time.monotonic() >= self._deadline:
            raise DeadlineExpired
