"""What the command line prints: the answer on stdout, everything about it on stderr."""

import codecs
import json
import math
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from weft._decoding import Sampling
from weft._streams import Stream
from weft._types import Classification, Completion, Model, Tagging
from weft.exceptions import Error

Answer = TypeVar("Answer", bound=Completion)


# Line ends and tabs are text. C0 has signs of its own; C1, which a terminal may obey as well, shares one.
_SIGNS = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
    | {127: 0x2421}
    | dict.fromkeys(range(128, 160), 0xFFFD)
)


def steerless(text: str) -> str:
    """Return a text with a sign for each control character: what a bundle says must not steer a terminal."""
    return text.translate(_SIGNS)


def words(text: str, style: str = "") -> Text:
    """Return text that others wrote as a table can show it."""
    return Text(steerless(text), style)


def emit(text: str, end: str = "\n") -> None:
    """Print on stdout at once, so that a closed pipe is noticed here and not at exit.

    In a pipe the text stays as it is.
    """
    print(steerless(text) if sys.stdout.isatty() else text, end=end, flush=True)  # noqa: T201 - this is the command line's output


def emit_json(message: Any) -> None:
    """Print an answer, or a mapping, as one line of JSON."""
    plain = message if isinstance(message, dict) else _plain(message)
    # What stdout can't encode is backslashed there, and not as JSON wants it.
    line = json.dumps(plain, ensure_ascii=not _is_utf8(sys.stdout.encoding), allow_nan=False)
    emit(_BEYOND_ASCII.sub(lambda found: f"\\u{ord(found[0]):04x}", line))


# Control characters that JSON lets stand.
_BEYOND_ASCII = re.compile("[\x7f-\x9f]")


def _is_utf8(encoding: str | None) -> bool:
    return encoding is None or codecs.lookup(encoding).name == "utf-8"


def _plain(answer: Any) -> dict[str, Any]:
    plain = asdict(answer)
    if strategy := getattr(getattr(answer, "decoding", None), "strategy", None):  # a dict alone would not say which
        plain["decoding"]["strategy"] = {type(strategy).__name__.lower(): asdict(strategy)}
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


def streamed(stream: Stream[Answer], *, as_json: bool) -> Answer:
    """Print a stream as it comes and return its result; as JSON, one line per delta and one for the whole."""
    with stream:
        with patience("waiting for the first token"):
            delta = next(stream, None)
        while delta is not None:
            if as_json:
                emit_json({"delta": delta})
            else:
                emit(delta, end="")
            delta = _next(stream, as_json=as_json)
        if as_json:
            emit_json({"final": _plain(stream.result)})
        else:
            emit("")
    return stream.result


def _next(stream: Stream[Answer], *, as_json: bool) -> str | None:
    try:
        return next(stream, None)
    except Error:
        if not as_json:
            emit("")  # what went wrong is a line of its own
        raise


def whole(answer: Completion | Classification, text: str, *, as_json: bool) -> None:
    """Print an answer that came at once."""
    if as_json:
        emit_json(answer)
    else:
        emit(text)


def tags(answer: Tagging, *, tokens: bool, scores: bool, as_json: bool) -> None:
    """Print a line for each span or token: label, start, end and text, between tabs."""
    if as_json:
        emit_json(answer)
        return
    found = [(each, each.token) for each in answer.tokens] if tokens else [(each, each.text) for each in answer.spans]
    for each, text in found:
        score = [f"{each.score:.4f}"] if scores else []
        emit("\t".join((*score, " ".join(each.label.split()), str(each.start), str(each.end), " ".join(text.split()))))


def more(answer: Completion | Classification | Tagging, *, verbose: bool, scores: bool = False) -> None:
    """Print on stderr what was asked for besides the answer."""
    if scores and isinstance(answer, Completion):
        _token_scores(answer)
    if verbose:
        _about(answer)


def _about(answer: Completion | Classification | Tagging) -> None:
    timings = answer.timings
    facts = {
        "model": f"{answer.model.name} version {answer.model.version}",
        "tokens": f"{answer.usage.input_tokens} in, {answer.usage.output_tokens} out",
        "time": f"queue {_ms(timings.queue)}, prefill {_ms(timings.prefill)}, decode {_ms(timings.decode)}",
        "request": answer.request_id,
    }
    if isinstance(answer, Completion):
        facts["finish"] = answer.finish_reason
        if isinstance(answer.decoding.strategy, Sampling):
            facts["seed"] = str(answer.decoding.strategy.seed)
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(name, style="dim"), words(value))
    Console(stderr=True).print(grid)


def _token_scores(answer: Completion) -> None:
    table = Table("token", "id", "probability", box=SIMPLE_HEAD)
    for text, id_, log_prob in zip(answer.tokens, answer.token_ids, answer.token_log_probs, strict=True):
        table.add_row(words(repr(text)), str(id_), f"{math.exp(log_prob):.4f}")
    Console(stderr=True).print(table)


def model_table(models: Sequence[Model]) -> None:
    """Print the models of a server, one a row; narrow enough for a window of 60 columns."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("model", "about"):
        table.add_column(column, overflow="fold")
    for model in models:
        about = "\n".join((model.error or model.description, *_facts(model)))
        which = words(f"{model.name} {model.version}\n", style="bold")
        table.add_row(which.append(f"{model.task}, {model.state}", style="not bold"), words(about))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _facts(model: Model) -> Iterator[str]:
    """Yield what there is to know before asking: limits, what explains, how a text must begin."""
    limits = {
        "source": model.limits.max_source_tokens,
        "prompt": model.limits.max_prompt_tokens,
        "new": model.limits.max_new_tokens,
        "total": model.limits.max_total_tokens,
    }
    if stated := [f"{name} {count}" for name, count in limits.items() if count]:
        yield f"tokens: {', '.join(stated)}"
    if heads := model.attention_heads:
        layer = model.default_attention_layer
        default = "rollout" if layer is None else f"layer {layer}"
        yield f"attention heads by layer: {', '.join(map(str, heads))}; by default {default}"
    if model.prefixes:
        yield f"begins with: {', '.join(map(repr, model.prefixes))}"
    for name, tags in (("from", model.source_languages), ("into", model.target_languages)):
        if len(tags) > 1:  # then a request has to name one
            yield f"translates {name}: {', '.join(tags)}"
    if model.takes_messages:
        yield "takes messages"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
