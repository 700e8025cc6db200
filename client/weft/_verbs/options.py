"""What the verbs take besides their input, by keyword: what they share."""

from typing import TypedDict

from weft._decoding import Decoding
from weft._types import Explain


class Options(TypedDict, total=False):
    """What every request takes.

    `model` and `model_version` name the model: by default the server's only one for the task, and the version that the
    server means, mostly the highest. `version_label` names the version by its label instead: "stable" or "canary".
    `adapter` names one of the model's adapters, by which it answers then; see `Model.adapters`.
    `request_id` comes back in the answer and stands in the server's log; at most 64 printable ASCII characters.
    `explain` asks for the alignment, at the cost of one more pass; an `Explain` says of which layer and head.
    """

    model: str
    model_version: int | None
    version_label: str | None
    adapter: str
    request_id: str
    explain: bool | Explain


class WritingOptions(Options, total=False):
    """What a request for text takes besides: how to produce it, and what to tell of its tokens.

    `return_scores` asks for each token's log-probability, `num_top_tokens` for so many of the most probable tokens of
    each step.
    """

    decoding: Decoding | None
    return_scores: bool
    num_top_tokens: int
