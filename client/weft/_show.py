"""What the command line prints: the answer on stdout, everything about it on stderr."""

import json
import math
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

from weft._streams import Stream
from weft._types import Classification, Completion, Limits, Model, Sampling

Answer = TypeVar("Answer", bound=Completion)


def emit(text: str, end: str = "\n") -> None:
    """Print on stdout at once, so that a closed pipe is noticed here and not at exit."""
    print(text, end=end, flush=True)  # noqa: T201 - this is the command line's output


def emit_json(message: Any) -> None:
    """Print an answer, or a mapping, as one line of JSON."""
    emit(json.dumps(message if isinstance(message, dict) else _plain(message), ensure_ascii=False))


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
            delta = next(stream, None)
        if as_json:
            emit_json({"final": _plain(stream.result)})
        else:
            emit("")
    return stream.result


def whole(answer: Completion | Classification, text: str, *, as_json: bool) -> None:
    """Print an answer that came at once."""
    if as_json:
        emit_json(answer)
    else:
        emit(text)


def more(answer: Completion | Classification, *, verbose: bool, scores: bool = False) -> None:
    """Print on stderr what was asked for besides the answer."""
    if scores and isinstance(answer, Completion):
        _token_scores(answer)
    if verbose:
        _about(answer)


def _about(answer: Completion | Classification) -> None:
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
        grid.add_row(Text(name, style="dim"), Text(value))
    Console(stderr=True).print(grid)


def _token_scores(answer: Completion) -> None:
    table = Table("token id", "probability", box=SIMPLE_HEAD)
    for token, log_prob in zip(answer.token_ids, answer.token_log_probs, strict=True):
        table.add_row(str(token), f"{math.exp(log_prob):.4f}")
    Console(stderr=True).print(table)


def model_table(models: Sequence[Model]) -> None:
    """Print the models of a server, one a row."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("model", "version", "task", "state", "limits", "description"):
        table.add_column(column, overflow="fold", justify="right" if column == "version" else "left")
    for model in models:
        row = (model.name, str(model.version), model.task, model.state, _limits(model.limits))
        table.add_row(*map(Text, row), Text(model.error or model.description))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _limits(limits: Limits) -> str:
    words = {
        "source": limits.max_source_tokens,
        "prompt": limits.max_prompt_tokens,
        "new": limits.max_new_tokens,
        "total": limits.max_total_tokens,
    }
    return ", ".join(f"{name} {count}" for name, count in words.items() if count)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
