"""Tables of the command line: tokens, models, and how an answer came about."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft._completions import Completion, Output
from weft._decoding import Sampling
from weft._model import Model, TruncationSide
from weft._terminal import words
from weft._types import ResolvedModel, Task, Timings, TopToken, Usage
from weft._verbs.score import Score


def every_output(answer: Completion) -> list[Completion | Output]:
    """Return the answer, and the further ones of the same request."""
    return [answer, *answer.others]


def token_tables(answer: Completion) -> None:
    """Print on stderr the tokens of an answer, or of each of several, with their probabilities."""
    console = Console(stderr=True)
    outputs = every_output(answer)
    for number, output in enumerate(outputs, 1):
        if len(outputs) > 1:
            console.print(Text(f"answer {number}", style="bold"))
        console.print(_token_table(output))
        if output.score is not None:
            console.print(f"  score {output.score:.4f}", highlight=False)


def score_table(answer: Score) -> None:
    """Print on stderr the tokens of a target with their probabilities, or those of a query with what they met."""
    Console(stderr=True).print(_match_table(answer) if answer.matches else _token_table(answer))


def _match_table(answer: Score) -> Table:
    table = Table("token", "met", "score", box=SIMPLE_HEAD)
    for text, match in zip(answer.tokens, answer.matches, strict=True):
        met = answer.target_tokens[match.place]
        table.add_row(words(repr(text)), words(repr(met)), Text(f"{match.score:.4f}"))
    return table


def _token_table(output: Completion | Output | Score) -> Table:
    table = Table("token", "id", "probability", box=SIMPLE_HEAD)
    if output.top_tokens:
        table.add_column("most probable")
    for index, (text, id_) in enumerate(zip(output.tokens, output.token_ids, strict=True)):
        row = [words(repr(text)), Text(str(id_)), Text(_probability(output.token_log_probs[index]))]
        if output.top_tokens:
            row.append(_top(output.top_tokens[index]))
        table.add_row(*row)
    return table


def _top(tokens: Sequence[TopToken]) -> Text:
    """Say each of the most probable tokens of a step on a line of its own."""
    return words("\n".join(f"{_probability(each.log_prob)}  {each.token!r}" for each in tokens))


def _probability(log_prob: float) -> str:
    """Say a probability with four digits, and one that would look like none in powers of ten."""
    probability = math.exp(log_prob)
    return f"{probability:.4f}" if probability >= 0.0001 else f"{probability:.1e}"


def prompt_line(answer: Completion) -> None:
    """Say on stderr how probable the prompt is."""
    total, count = sum(answer.prompt_log_probs), len(answer.prompt_log_probs)
    perplexity = math.exp(min(-total / count, 700.0))
    Console(stderr=True).print(
        f"prompt: log-probability {total:.4f}, perplexity {perplexity:.4g}", highlight=False, soft_wrap=True
    )


class Answered(Protocol):
    """What every answer of a model says besides."""

    @property
    def usage(self) -> Usage: ...

    @property
    def timings(self) -> Timings: ...

    @property
    def model(self) -> ResolvedModel: ...

    @property
    def request_id(self) -> str: ...


def about(answer: Answered) -> None:
    """Print on stderr the model, the tokens, the times and the request."""
    timings, usage = answer.timings, answer.usage
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    facts = {
        "model": f"{answer.model.name} version {answer.model.version}"
        + (f" with adapter {answer.model.adapter}" if answer.model.adapter else ""),
        "tokens": f"{usage.input_tokens} in{cached}, {usage.output_tokens} out",
        "time": f"queue {_ms(timings.queue)}, prefill {_ms(timings.prefill)}, decode {_ms(timings.decode)}",
        "request": answer.request_id,
    }
    if isinstance(answer, Completion):
        facts["finish"] = ", ".join(each.finish_reason for each in every_output(answer))
        if isinstance(answer.decoding.strategy, Sampling):
            facts["seed"] = str(answer.decoding.strategy.seed)
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(name, style="dim"), words(value))
    Console(stderr=True).print(grid)


def model_table(models: Sequence[Model]) -> None:
    """Print the models of a server, one a row; narrow enough for a window of 60 columns."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("model", "about"):
        table.add_column(column, overflow="fold")
    for model in models:
        about = "\n".join((model.error or model.description, *_facts(model)))
        which = words(f"{model.name} {model.version}\n", style="bold")
        standing = ", ".join((model.task, model.state, *_labels(model)))
        table.add_row(which.append(standing, style="not bold"), words(about))
    # rich reads COLUMNS itself, on a terminal or not.
    is_told = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if is_told else 140).print(table)


def _labels(model: Model) -> list[str]:
    shares = {"canary": f" {model.canary_share:.3g}"}
    return [label + shares.get(label, "") for label in model.version_labels]


def _spoken(model: Model) -> Iterator[str]:
    """Yield how a recording is written down where a request does not say."""
    defaults = {
        model.default_language: bool(model.default_language),
        "in English": model.default_to_english,
        "with timestamps": model.default_timestamps,
    }
    if said := [name for name, does in defaults.items() if does]:
        yield f"transcribes {', '.join(said)} unless asked otherwise"


def _facts(model: Model) -> Iterator[str]:
    """Yield what there is to know before asking: precision, limits, what explains, how a text must begin."""
    limits = {
        "source": model.limits.max_source_tokens,
        "prompt": model.limits.max_prompt_tokens,
        "new": model.limits.max_new_tokens,
        "total": model.limits.max_total_tokens,
    }
    if model.precision:
        far = [device for device in model.devices if device != "cpu"]
        where = ", on ".join([f"precision: {model.precision}", *filter(None, [" and ".join(far)])])
        yield f"{where}, {model.size_bytes / 1e6:,.1f} MB" if model.size_bytes else where
    if stated := [f"{name} {count}" for name, count in limits.items() if count]:
        yield f"tokens: {', '.join(stated)}"
    yield from _hears(model)
    if model.dimensions:
        yield f"vectors: {model.dimensions} dimensions{', of length 1' if model.normalized else ''}"
    if heads := model.attention_heads:
        layer = model.default_attention_layer
        default = "rollout" if layer is None else f"layer {layer}"
        yield f"attention heads by layer: {', '.join(map(str, heads))}; by default {default}"
    if model.prefixes:
        yield f"begins with: {', '.join(map(repr, model.prefixes))}"
    yield from _reads(model)
    verbs = ("hears", "writes") if model.task is Task.TRANSCRIBE else ("translates from", "translates into")
    for verb, tags in zip(verbs, (model.source_languages, model.target_languages), strict=True):
        if len(tags) > 1:
            yield f"{verb}: {', '.join(tags)}"
    if most := [f"{count} {name}" for name, count in _most(model) if count]:
        yield f"at most {', '.join(most)}"
    yield from _spoken(model)
    takes = {
        "messages": model.takes_messages,
        "pictures in messages": model.takes_pictures,
        "constraints": model.takes_constraints,
        "texts to score": model.can_score,
        f"labels, each in {model.label_text!r}": model.takes_labels,
        "timestamps": model.tells_timestamps,
        f"adapters ({', '.join(model.adapters) or 'none yet'})": model.takes_adapters,
    }
    if taken := [name for name, does in takes.items() if does]:
        yield f"takes {', '.join(taken)}"


def _reads(model: Model) -> Iterator[str]:
    """Yield what stands before a text, and where one that is too long is cut."""
    if any(prompt.text for prompt in model.prompts):
        default = f"; by default {model.default_prompt_name}" if model.default_prompt_name else ""
        yield f"prompts: {', '.join(f'{name} {text!r}' for name, text, _ in model.prompts)}{default}"
    if model.question_forms:
        yield f"questions by a word: {', '.join(each.token for each in model.question_forms)}"
    if model.truncation_side is not TruncationSide.UNSPECIFIED:
        yield f"cuts a text that is too long on the {model.truncation_side}"


def _hears(model: Model) -> Iterator[str]:
    if model.limits.window_s:
        yield f"hears {model.limits.window_s:g} s at once, of at most {model.limits.max_audio_s} s"


def _most(model: Model) -> tuple[tuple[str, int], ...]:
    limits = model.limits
    inputs, labels = ("inputs", limits.max_inputs), ("labels of a request", limits.max_labels)
    outputs = limits.max_outputs if limits.max_outputs > 1 else 0
    return ("beams", limits.max_beams), ("outputs", outputs), inputs, labels


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
