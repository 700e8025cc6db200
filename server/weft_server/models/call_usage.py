"""What one request took: bytes, tokens, and when it came on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft_server.sequence import Sequence


@dataclass(slots=True, eq=False)
class CallUsage:
    """One for all calls that are made for a request.

    Attributes:
        request_bytes: of its message or body, as it came. 0 until it has come whole.
        response_bytes: of what was given to the connection to be sent.
        input_tokens: tokens and patches of its inputs, once they are read.
        output_tokens: tokens that were produced for it, in all rows.
        charged_tokens: those that were taken from the rate of its account.
        writes_text: whether any of its sequences does.
        read: monotonic seconds at which the first of its inputs had been read. 0: none was.
        admitted: when the first of its sequences went on from the queue.
        encoded: when the first of its sources had been read by an encoder, apart from the decoder.
        first_token: when its first token came, or where it writes no text, its first result.
        finished: when the last of its sequences had ended.
        explained: when the last explanation of its answers was there.
    """

    request_bytes: int = 0
    response_bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    charged_tokens: int = 0
    writes_text: bool = False
    read: float = 0.0
    admitted: float = 0.0
    encoded: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    explained: float = 0.0

    @property
    def used_tokens(self) -> int:
        """Tokens that it cost. A request that no model began cost none, also if its input was read."""
        return self.input_tokens + self.output_tokens if self.admitted else 0

    def add(self, sequence: Sequence) -> int:
        """Take over what a sequence took until now. Returns how many tokens are known to be produced for it."""
        times = sequence.times
        self.admitted = _earlier(self.admitted, times.admitted)
        self.encoded = _earlier(self.encoded, times.encoded)
        self.first_token = _earlier(self.first_token, times.first_token)
        self.finished = max(self.finished, times.finished)
        self.explained = max(self.explained, times.explained)
        self.writes_text |= sequence.decoding is not None
        # What it reads again is another sequence's.
        if sequence.is_counted:
            return 0
        # A lane counts the tokens of a row when that has ended, which may be after its call.
        num_tokens = max(sequence.num_output_tokens, len(sequence.reply.token_ids))
        self.input_tokens += sequence.num_input_tokens
        self.output_tokens += num_tokens
        return num_tokens


def _earlier(one: float, other: float) -> float:
    """The earlier of two times. 0 is none."""
    return min(one, other) if one and other else one or other
