"""On whose account calls go: a name of the tokens file, and the tokens that it may use."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from weft_server.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.models.call_usage import CallUsage
    from weft_server.sequence import Sequence


class TokenRate(NamedTuple):
    """So many tokens in so many seconds. As many may come at once after a while without."""

    tokens: int
    seconds: int


class TokenBucket:
    """What is left of a rate. To be used on the event loop's thread.

    1. A request is let in while a token is left, however long it is: nobody knows yet how long its answer will be.
    2. Its input is taken when it has been read, its output when it has ended. So the level may fall below 0.
    3. Until the level has risen to 1 again, no more are let in. So over time nobody gets more than the rate.
    """

    def __init__(self, rate: TokenRate, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin full. `clock` gives seconds."""
        self._clock = clock
        self._seen = clock()
        self._level = float(rate.tokens)
        self.rate = rate

    @property
    def level(self) -> float:
        """Tokens that are left now. Below 0 are those that were used beyond."""
        now = self._clock()
        rise = (now - self._seen) * self.rate.tokens / self.rate.seconds
        self._level, self._seen = min(float(self.rate.tokens), self._level + rise), now
        return self._level

    def change(self, rate: TokenRate) -> None:
        """Go on at another rate, from the level of now, or from the most that the new one lets it have."""
        self._level = min(self.level, float(rate.tokens))
        self.rate = rate

    def take(self, num_tokens: int) -> None:
        """Take tokens that were used. Fewer than 0 are given back."""
        self._level = min(float(self.rate.tokens), self.level - num_tokens)

    @property
    def wait_s(self) -> float:
        """Seconds until a request is let in. 0: one is now."""
        return max(0.0, (1 - self.level) * self.rate.seconds / self.rate.tokens)


class Account:
    """One for each name of the tokens file, as long as the file has it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bucket: TokenBucket | None = None
        # Of each model, by the names of metrics. Empty for requests that reached none.
        self._usage: dict[str, Counter[str]] = defaultdict(Counter)

    def set_rate(self, rate: TokenRate | None) -> None:
        """Take what the file says now."""
        if rate is None:
            self.bucket = None
        elif self.bucket is None:
            self.bucket = TokenBucket(rate)
        elif self.bucket.rate != rate:
            self.bucket.change(rate)

    def check(self) -> None:
        """Raise Overloaded while the account has used up its rate."""
        if self.bucket and (wait_s := self.bucket.wait_s):
            rate = self.bucket.rate
            text = f"{self.name!r} has used up its rate of {rate.tokens} tokens in {rate.seconds} s"
            raise Overloaded("TENANT_TOKEN_RATE", text, wait_s)

    def charge(self, usage: CallUsage, num_tokens: int) -> None:
        """Take the tokens of an input that was read for a request. Raises as `check` before its first one."""
        if not self.bucket:
            return
        if not usage.charged_tokens:
            self.check()
        usage.charged_tokens += num_tokens
        self.bucket.take(num_tokens)

    def ended(self, model: str, usage: CallUsage) -> None:
        """Count a request at its end, and settle what was charged for it. One that no model began used nothing."""
        counts = self._usage[model]
        counts["tenant_requests_total"] += 1
        counts["tenant_input_tokens_total"] += usage.input_tokens if usage.admitted else 0
        counts["tenant_output_tokens_total"] += usage.output_tokens
        if self.bucket:
            self.bucket.take(usage.used_tokens - usage.charged_tokens)

    def add_late(self, model: str, num_known: int, sequence: Sequence) -> None:
        """Count what a sequence's rows had produced beyond `num_known`: it has ended after its call.

        Who hangs up, or has a stop string, does not wait for a lane's step.
        """
        num_tokens = sequence.num_output_tokens - num_known
        self._usage[model]["tenant_output_tokens_total"] += num_tokens
        if self.bucket:
            self.bucket.take(num_tokens)

    def usage(self) -> list[tuple[str, dict[str, int]]]:
        """Return the counts by model, and by the names of metrics. May be asked from any thread."""
        return [(model, dict(counts)) for model, counts in list(self._usage.items())]
