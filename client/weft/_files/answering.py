"""From an answer to a line: text, or JSON with all of it."""

import re
from typing import Any

from weft import _show as show
from weft._status import code_of
from weft._types import Classification, Completion, Embeddings, Extraction, FilledMasks, Score, Tagging
from weft.exceptions import Error

_LINE_ENDS = re.compile(r"\r\n|[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]")


def json_line(outcome: Any, id_: Any, *, ascii_only: bool) -> str:
    """Return an answer, or what went wrong, as an object; with the id that its line had."""
    own = {} if id_ is None else {"id": id_}
    if isinstance(outcome, Error):
        error = {"code": code_of(outcome), "reason": outcome.reason, "message": outcome.message}
        own |= {"error": {name: value for name, value in error.items() if value}}
    else:
        own |= show.plain(outcome)
    return show.json_text(own, ascii_only=ascii_only)


def text_line(answer: Completion | Classification | Embeddings | Extraction | FilledMasks | Tagging | Score) -> str:
    """Return the text of an answer as one line: labels, spans, outputs, masks with tabs between, numbers, a sum.

    Line ends and tabs within a text are spaces.
    """
    match answer:
        case Completion():
            fields = show.texts_of(answer)
        case Classification():
            fields = show.label_texts(answer)
        case Tagging():
            fields = [f"{each.label} {each.start} {each.end} {each.text}" for each in answer.spans]
        case Extraction():
            fields = [each.text for each in answer.answers]
        case FilledMasks():
            fields = [" ".join(each.text.strip() for each in mask.fillings) for mask in answer.masks]
        case Embeddings():
            fields = [show.numbers(vector) for vector in answer.vectors]
        case Score():
            fields = [f"{answer.total:.4f}"]
    return "\t".join(_LINE_ENDS.sub(" ", each) for each in fields)
