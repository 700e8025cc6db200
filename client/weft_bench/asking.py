"""The requests of a load, made into bytes before the first is sent."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any

from google.protobuf.message import Message

from weft._decoding import Decoding
from weft._model import Model
from weft._types import Task, Text
from weft.exceptions import InvalidRequest
from weft_bench.inputs import Kind, kind_of, read_files, read_texts
from weft_bench.lengths import Uniform
from weft_bench.workload import TAKE_NO_IDS, WRITES_TEXT, Method, Workload, reads

# The number of different requests, if something of them is drawn. There is at least one for each input.
# After the last, the first is sent again.
NUM_TEXTS = 1024
NUM_FILES = 64
DEFAULT = Uniform(8, 32)

# Gives an input; told how many tokens the answer may have, for a prompt shares its room with it.
Source = Callable[[int], Text | bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `num_new_tokens` is 0 where the model decides how many, or writes no text."""

    payload: bytes
    num_new_tokens: int


def to_binary(message: Message) -> bytes:
    """Return a message in binary, as gRPC has it."""
    return message.SerializeToString()


def make_requests(
    workload: Workload,
    model: Model,
    method: Method,
    pack: Callable[[Message], bytes] = to_binary,
) -> list[Asked]:
    """Return the requests; the same seed makes the same ones. `pack` makes bytes of a message.

    Raises:
        InvalidRequest: The model does not take such inputs, or not of such lengths.
    """
    random = Random(workload.seed)  # noqa: S311 - a load, not a secret
    source, num_inputs, least = _source(workload, model, random)
    output = workload.output_tokens
    limit = _most_new_tokens(model, least)
    if output is not None and output.least_limit > limit:
        raise InvalidRequest(f"--output-tokens: {model.name} gives at most {limit} tokens, its inputs considered")

    options: dict[str, Any] = {"model": model.name, "model_version": model.version}
    for name, known in _languages(model).items():
        if len(known) > 1:  # then the server wants one of them named, or would tell what is spoken at some cost
            options[name] = known[0]
    if workload.question:
        options["question"] = workload.question

    made = []
    most = NUM_TEXTS if reads(model.task) is Kind.TEXTS else NUM_FILES
    for _ in range(num_inputs if workload.paths and output is None else max(num_inputs, most)):
        longest = 0 if output is None else output.draw(random, limit)
        if model.task in WRITES_TEXT and longest:
            options["decoding"] = Decoding(longest, longest - 1 if workload.forced else None)
        made.append(Asked(pack(method.request(source(longest), **options)), longest if workload.forced else 0))
    return made


def _languages(model: Model) -> dict[str, tuple[str, ...]]:
    if model.task in (Task.TRANSCRIBE, Task.TRANSCRIBE_CTC):
        return {"language": model.source_languages}
    return {"source_language": model.source_languages, "target_language": model.target_languages}


def _most_new_tokens(model: Model, least_input: int) -> int:
    limits = model.limits
    room = limits.max_total_tokens - least_input if limits.max_total_tokens else limits.max_new_tokens
    return min(limits.max_new_tokens, room)


def _source(workload: Workload, model: Model, random: Random) -> tuple[Source, int, int]:
    """Return what gives inputs, how many different ones there are, and the tokens that one may need at least."""
    kind = reads(model.task)
    if workload.paths:
        if (given_kind := kind_of(workload.paths)) is not kind:
            raise InvalidRequest(f"--input: {model.name} takes {kind}, not {given_kind}")
        if workload.input_tokens is not None:
            raise InvalidRequest("--input-tokens: with --input, lengths are those of the inputs")
        given: list[Any] = read_texts(workload.paths) if kind is Kind.TEXTS else read_files(workload.paths)
        turn = cycle(given)
        return lambda _: next(turn), len(given), 1
    if kind is not Kind.TEXTS or model.task in TAKE_NO_IDS:
        raise InvalidRequest(f"--input: {model.name} takes {kind}; give files or a folder")
    return _drawn(workload, model, random)


def _drawn(workload: Workload, model: Model, random: Random) -> tuple[Source, int, int]:
    """Draw token ids, each of the vocabulary as likely as any other."""
    limits = model.limits
    most = limits.max_prompt_tokens or limits.max_source_tokens
    if limits.max_total_tokens:
        most = min(most, limits.max_total_tokens - 1)
    lengths = workload.input_tokens or Uniform(min(DEFAULT.low, most // 2), min(DEFAULT.high, most // 2))
    if lengths.least_limit > most:
        raise InvalidRequest(f"--input-tokens: {model.name} takes at most {most} tokens")

    def draw(new_tokens: int) -> list[int]:
        limit = min(most, limits.max_total_tokens - new_tokens) if limits.max_total_tokens else most
        return random.choices(range(model.vocab_size), k=lengths.draw(random, limit))

    return draw, 1, lengths.least_limit
