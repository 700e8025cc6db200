"""What the command line prints: the answer on stdout, everything about it on stderr."""

import codecs
import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import combinations
from typing import Any, TypeVar

from rich.console import Console
from rich.status import Status

from weft._completions import Completion, Transcription
from weft._decoding_json import plain_decoding
from weft._sync.streams import Stream
from weft._tables import about, every_output, prompt_line, score_table, token_tables
from weft._terminal import steerless
from weft._tokenization import Tokenization
from weft._types import (
    Classification,
    Embeddings,
    Extraction,
    FilledMasks,
    LabelScore,
    LabelScoring,
    Score,
    Tagging,
)
from weft.exceptions import Error

Answer = TypeVar("Answer", bound=Completion)


def emit(text: str, end: str = "\n") -> None:
    """Print on stdout at once, so that a closed pipe is noticed here and not at exit.

    In a pipe the text stays as it is.
    """
    print(steerless(text) if sys.stdout.isatty() else text, end=end, flush=True)  # noqa: T201 - this is the command line's output


def emit_json(message: Any) -> None:
    """Print an answer, or a mapping, as one line of JSON."""
    emit(json_text(message if isinstance(message, dict) else plain(message), ascii_only=not is_utf8()))


def json_text(message: dict[str, Any], *, ascii_only: bool) -> str:
    """Return one line of JSON without any control character."""
    line = json.dumps(message, ensure_ascii=ascii_only, allow_nan=False)
    return _BEYOND_ASCII.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


# Control characters that JSON lets stand.
_BEYOND_ASCII = re.compile("[\x7f-\x9f]")


def is_utf8() -> bool:
    """Whether stdout can encode everything. What it can't is backslashed there, and not as JSON wants it."""
    encoding = sys.stdout.encoding
    return encoding is None or codecs.lookup(encoding).name == "utf-8"


def plain(answer: Any) -> dict[str, Any]:
    """Return an answer as JSON has it."""
    plain = asdict(answer)
    if decoding := getattr(answer, "decoding", None):
        plain["decoding"] = plain_decoding(decoding)
    return plain


@contextmanager
def patience(what: str) -> Iterator[None]:
    """Show a spinner on the terminal once the block has taken two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    status = Status(what, console=Console(stderr=True))
    timer = threading.Timer(2.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def from_word(text: str, *, heard: bool) -> str:
    """Return a text as it is printed. That of a recording begins with a word: Whisper writes a space before each."""
    return text.lstrip(" ") if heard else text


def streamed(stream: Stream[Answer], *, scores: bool, as_json: bool, heard: bool = False) -> Answer:
    """Print a stream as it comes and return its result; as JSON, one line per delta and one for the whole.

    `heard` is what came of a recording.

    Of several answers, and of a search, all comes at the end.
    """
    with stream:
        with patience("waiting for the first token"):
            delta = next(stream, None)
        came, begun = delta is not None, False
        while delta is not None:
            if as_json:
                emit_json({"delta": delta})
            else:
                shown = delta if begun else from_word(delta, heard=heard)
                begun = begun or bool(shown)
                emit(shown, end="")
            delta = _next(stream, as_json=as_json)
        if as_json:
            emit_json({"final": plain(stream.result)})
        elif came:
            emit("")
        else:
            written(stream.result, scores=scores, as_json=False)
    return stream.result


def _next(stream: Stream[Answer], *, as_json: bool) -> str | None:
    try:
        return next(stream, None)
    except Error:
        if not as_json:
            emit("")  # what went wrong is a line of its own
        raise


def written(answer: Completion, *, scores: bool, as_json: bool) -> None:
    """Print the text of an answer, or of each of several: a line for each, or, of longer ones, lines between them."""
    if as_json:
        emit_json(answer)
        return
    texts = [
        text if each.score is None or not scores or not answer.others else f"{each.score:.4f}  {text}"
        for each, text in zip(every_output(answer), texts_of(answer), strict=True)
    ]
    between = "\n---\n" if any("\n" in text for text in texts) else "\n"
    emit(between.join(texts))


def texts_of(answer: Completion) -> list[str]:
    """Return the texts of an answer and of the further ones, as they are printed."""
    return [from_word(each.text, heard=isinstance(answer, Transcription)) for each in every_output(answer)]


def timed(answer: Transcription) -> None:
    """Print a line for each segment of a recording: start, end and text, between tabs."""
    for segment in answer.segments:
        emit(f"{segment.start_s:.2f}\t{segment.end_s:.2f}\t{from_word(segment.text, heard=True)}")


def held(answer: Classification) -> tuple[LabelScore, ...]:
    """Return the labels that hold: the first one, or all where labels do not exclude each other."""
    return answer.labels[:1] if answer.scoring is LabelScoring.UNSPECIFIED else answer.labels


def label_texts(answer: Classification) -> list[str]:
    """Return what a person reads of each label that holds: its name, or the value of a regression."""
    if answer.scoring is not LabelScoring.IDENTITY:
        return [each.label for each in held(answer)]
    if len(answer.labels) == 1:  # its name says nothing
        return [f"{answer.labels[0].score:.4f}"]
    return [f"{each.score:.4f}  {each.label}" for each in answer.labels]


def label_title(answer: Classification) -> str:
    """Return the labels that hold with their scores, as one line above a picture."""
    figure = ".4f" if answer.scoring is LabelScoring.IDENTITY else ".1%"
    return ", ".join(f"{each.label} ({each.score:{figure}})" for each in held(answer))


def labels(answer: Classification, *, scores: bool, as_json: bool) -> None:
    """Print the labels that hold, a line each; with scores all that came, and of a regression its values."""
    if as_json:
        emit_json(answer)
        return
    lines = [f"{each.score:.4f}  {each.label}" for each in answer.labels] if scores else label_texts(answer)
    if lines:
        emit("\n".join(lines))


def tags(answer: Tagging, *, tokens: bool, scores: bool, as_json: bool) -> None:
    """Print a line for each span or token: label, start, end and text, between tabs."""
    if as_json:
        emit_json(answer)
        return
    found = [(each, each.token) for each in answer.tokens] if tokens else [(each, each.text) for each in answer.spans]
    for each, text in found:
        score = [f"{each.score:.4f}"] if scores else []
        emit("\t".join((*score, " ".join(each.label.split()), str(each.start), str(each.end), " ".join(text.split()))))


def extracted(answer: Extraction, *, scores: bool, as_json: bool) -> None:
    """Print a line for each answer: its text; with scores its score, start, end and text, between tabs."""
    if as_json:
        emit_json(answer)
        return
    for each in answer.answers:
        text = " ".join(each.text.split())
        emit("\t".join((f"{each.score:.4f}", str(each.start), str(each.end), text)) if scores else text)


def filled(answer: FilledMasks, *, scores: bool, as_json: bool) -> None:
    """Print a line for each filling: its text; with scores its score, the mask's start and end, and text."""
    if as_json:
        emit_json(answer)
        return
    for index, mask in enumerate(answer.masks):
        if index and not scores:
            emit("")
        for each in mask.fillings:
            text = " ".join(each.text.split())
            emit("\t".join((f"{each.score:.4f}", str(mask.start), str(mask.end), text)) if scores else text)


def tokens(answer: Tokenization, *, counts: bool, as_json: bool) -> None:
    """Print a line for each token: id, start, end and text, between tabs. Or print how many there are."""
    if as_json:
        emit_json(answer)
    elif counts:
        emit(str(answer.num_tokens))
    else:
        lines = ("\t".join((str(each.id), str(each.start), str(each.end), repr(each.token))) for each in answer.tokens)
        emit("\n".join(lines))


def numbers(vector: Sequence[float]) -> str:
    """Return a vector as a line of numbers with spaces between them."""
    return " ".join(f"{value:.7g}" for value in vector)


def embedded(answer: Embeddings, names: Sequence[str], *, cosines: bool, as_json: bool) -> None:
    """Print a line of numbers for each input; or a line for each pair, most alike first: cosine and both, with tabs."""
    if as_json:
        emit_json(answer)
        return
    if not cosines:
        for vector in answer.vectors:
            emit(numbers(vector))
        return
    pairs = [(answer.cosine(*pair), *pair) for pair in combinations(range(len(names)), 2)]
    for cosine, *pair in sorted(pairs, key=lambda each: -each[0]):
        emit("\t".join((f"{cosine:.4f}", *(" ".join(names[place].split()) for place in pair))))


def scored(answer: Score, *, tokens: bool, verbose: bool, as_json: bool) -> None:
    """Print the sum of log-probabilities, and on stderr what was asked for besides."""
    if as_json:
        emit_json(answer)
    else:
        emit(f"{answer.total:.4f}")
        if tokens:
            score_table(answer)
    if verbose:
        about(answer)


def more(
    answer: Completion | Classification | Embeddings | Extraction | FilledMasks | Tagging,
    *,
    verbose: bool,
    tokens: bool = False,
) -> None:
    """Print on stderr what was asked for besides the answer."""
    if isinstance(answer, Completion):
        if tokens:
            token_tables(answer)
        if answer.prompt_log_probs:
            prompt_line(answer)
    if verbose:
        about(answer)
