"""What the command line prints: the answer on stdout, everything about it on stderr."""

import codecs
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from rich.console import Console
from rich.status import Status

from weft._completions import Completion, Transcription
from weft._decoding_json import plain_decoding
from weft._sync.streams import Stream
from weft._tables import Answered, about, every_output, prompt_line, token_tables
from weft._terminal import steerless
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


def more(answer: Answered, *, verbose: bool, tokens: bool = False) -> None:
    """Print on stderr what was asked for besides the answer."""
    if isinstance(answer, Completion):
        if tokens:
            token_tables(answer)
        if answer.prompt_log_probs:
            prompt_line(answer)
    if verbose:
        about(answer)
