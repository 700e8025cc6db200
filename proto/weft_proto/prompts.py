"""What a model puts before a text, and whether it cuts one: rules of TextSpec that exporter and server both keep."""

from collections.abc import Callable

from weft_proto.bundle_rules import MAX_CHARS_PER_TOKEN, MAX_CUT_CHARS
from weft_proto.tasks import Task
from weft_proto.v1 import bundle_pb2, common_pb2

_SIDES = set(common_pb2.TruncationSide.values())
_DIRECTIONS = {common_pb2.TRUNCATION_SIDE_RIGHT: "right", common_pb2.TRUNCATION_SIDE_LEFT: "left"}


def truncation_direction(text: bundle_pb2.TextSpec) -> str | None:
    """Return at which side a source is cut, as the tokenizers library calls it; None where one too long is refused."""
    return _DIRECTIONS.get(text.truncation_side)


def default_prompt(text: bundle_pb2.TextSpec) -> str:
    """Return what stands before a text of a request that names no prompt."""
    return next((each.text for each in text.prompts if each.name == text.default_prompt_name), "")


def max_chars(text: bundle_pb2.TextSpec, max_tokens: int) -> int:
    """Return how many characters a text of a request has at most. More are refused unread.

    A text that is cut may be longer than the model takes, and has to be read to know where.
    """
    return max(MAX_CUT_CHARS if text.truncation_side else 0, max_tokens * MAX_CHARS_PER_TOKEN)


def prompts_fault(text: bundle_pb2.TextSpec, task: Task) -> str | None:
    """Say what is wrong with the prompts of a model, or with where it cuts a text, or None."""
    names = [each.name for each in text.prompts]
    default = text.default_prompt_name
    faults = {
        "text.prompts are for embed_text and classify_text": names and not task.takes_prompt_name,
        "text.prompts has one without a name": not all(names),
        "text.prompts has a name twice": len(set(names)) != len(names),
        f"text.default_prompt_name is {default!r:.80}, which is none of text.prompts": default and default not in names,
        f"text.truncation_side {text.truncation_side} is unknown": text.truncation_side not in _SIDES,
        "text.truncation_side is for classify_text, tag and embed_text": text.truncation_side and not task.may_cut,
    }
    return next((sentence for sentence, is_so in faults.items() if is_so), None)


def spelling_fault(text: bundle_pb2.TextSpec, ids_of: Callable[[str], list[int]]) -> str | None:
    """Say which prompt spells the token that stands between two texts, or None.

    The model would take what follows for the second text. `ids_of` gives the tokens of a text, and nothing around them.
    """
    if not text.HasField("separator_id"):
        return None
    divider = text.separator_id
    spelling = (each.name for each in text.prompts if divider in ids_of(each.text))
    return next(
        (f"text.prompts has {name!r:.80}, which spells the token {divider} of text.separator_id" for name in spelling),
        None,
    )
