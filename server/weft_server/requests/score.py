"""Scores an answer that a request gives: reads it as the model would have produced it, and waits for its scores."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft_proto.bundle_rules import MAX_CHARS_PER_TOKEN
from weft_proto.tasks import TASKS
from weft_server.engine.score_lane import GivenAnswer
from weft_server.errors import CannotScore, InvalidRequest
from weft_server.preprocessing.tokenizer import known

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.engine import Engine
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.requests.generate import Read
    from weft_server.sequence import Scores, Sequence, Standing
    from weft_server.source import Source

    # Gives the ids of a target to a source of some tokens.
    Target = Callable[[Source], list[int]]


def scorer_of(model: Model, field: str) -> Engine:
    """Return the engine of a model that scores. `field` is what asks for it. Raises CannotScore if there is none."""
    if model.scorer is None:
        raise CannotScore(model.name, field)
    return model.scorer


def prompt_scorer(model: Model, field: str, standing: Standing) -> Engine:
    """Return the engine of a model that scores, for a prompt that is answered first. It is promised a place there.

    None is held meanwhile: what is being answered is no load of the scorer's. When all of that has ended, more may wait
    than its bounds say, by as many as the engine that answers has slots and lets wait. Then no other prompt is let in.

    Raises:
        CannotScore: the model has no graph for it.
        Overloaded: as many as may wait for their scores already.
    """
    scorer = scorer_of(model, field)
    scorer.check_open(standing)
    return scorer


def target_of(model: Model, request: Any, prefix_ids: tuple[int, ...]) -> Target:
    """Return what reads the target of a request, which the decoder is fed behind `prefix_ids`.

    Raises:
        InvalidRequest: there is none, or one of its ids is not the model's. The reader raises it too, for its text.
    """
    kind = request.WhichOneof("target")
    if kind is None:
        raise InvalidRequest("target", "is required: target_text or target_ids", "EMPTY_INPUT")
    text, takes_prompt = model.manifest.text, TASKS[model.manifest.task].takes_prompt
    field = "target_text" if kind == "target_text" else "target_ids.ids"

    def check_length(ids: list[int], source: Source) -> list[int]:
        room = text.max_total_tokens - (source.num_tokens if takes_prompt else len(prefix_ids))
        most = min(text.max_new_tokens, room)
        if len(ids) > most:
            why = f"; {source.num_tokens} prompt tokens leave {room}" if takes_prompt and room < len(ids) else ""
            message = f"is {len(ids)} tokens long; the model gives at most {most}{why}"
            raise InvalidRequest(field, message, "INPUT_TOO_LONG")
        return ids

    if kind == "target_ids":
        ids = _checked_ids(request.target_ids.ids, text.target_vocab_size, text.max_new_tokens, field)
        return lambda source: check_length(ids, source)
    if not request.target_text:
        raise InvalidRequest(field, "must not be empty", "EMPTY_INPUT")
    if len(request.target_text) > text.max_new_tokens * MAX_CHARS_PER_TOKEN:
        count = len(request.target_text)
        why = f"is {count} characters long; the model gives at most {text.max_new_tokens} tokens"
        raise InvalidRequest(field, why, "INPUT_TOO_LONG")
    return lambda source: check_length(_answer_ids(model, request.target_text, field), source)


def _checked_ids(ids: Any, vocab_size: int, most: int, field: str) -> list[int]:
    if not ids:
        raise InvalidRequest(field, "must not be empty", "EMPTY_INPUT")
    if len(ids) > most:
        raise InvalidRequest(field, f"is {len(ids)} tokens long; the model gives at most {most}", "INPUT_TOO_LONG")
    for index, token in enumerate(ids):
        if token >= vocab_size:
            why = f"must be below the vocabulary size, {vocab_size}, not {token}"
            raise InvalidRequest(f"{field}[{index}]", why, "TOKEN_OUT_OF_RANGE")
    return list(ids)


def _answer_ids(model: Model, text: str, field: str) -> list[int]:
    """Return the ids of a text as the model would produce it, with the first of its end tokens."""
    ids = known(model.target_tokenizer.encode_framed, text, field)
    if not ids:
        raise InvalidRequest(field, "holds nothing that the model's tokenizer keeps", "EMPTY_INPUT")
    if max(ids) >= model.manifest.text.target_vocab_size:
        raise InvalidRequest(field, "has a token that the model cannot produce", "TOKEN_OUT_OF_RANGE")
    return [*ids, *model.manifest.text.end_ids[:1]]


def given_of(
    manifest: bundle_pb2.BundleManifest, source: Source, target: list[int], prefix_ids: tuple[int, ...]
) -> GivenAnswer:
    """Return what a SCORE graph reads of a source and its target, which is not empty."""
    text = manifest.text
    scored_ids = np.array(target, np.int64)
    if TASKS[manifest.task].takes_prompt:
        return GivenAnswer(np.concatenate((source.array, scored_ids[:-1])), None, scored_ids, text.max_total_tokens)
    fed = np.array([text.start_id, *prefix_ids, *target[:-1]], np.int64)
    return GivenAnswer(fed, source, scored_ids, text.max_total_tokens)


class Scored(NamedTuple):
    """A target that has its scores."""

    sequence: Sequence
    source: Source
    token_ids: list[int]
    scores: Scores


async def score(call: RequestContext, model: Model, read: Read, target: Target, prefix_ids: tuple[int, ...]) -> Scored:
    """Score a target behind a source.

    Raises:
        RequestError: the request was refused, or its deadline passed.
    """
    scorer = scorer_of(model, "model.name")
    scorer.reserve(call.standing, deadline=call.deadline)
    try:
        started = time.monotonic()

        def prepare(wanted: Wanted) -> tuple[Source, list[int]]:
            source = read(wanted) if callable(read) else read
            return source, target(source)

        source, token_ids = await model.work(prepare, call.deadline)
        model.metrics.preprocess.observe(time.monotonic() - started)
        given = given_of(model.manifest, source, token_ids, prefix_ids)
        sequence = call.sequence(given)
        scorer.submit(sequence)
    except BaseException:
        scorer.release(call.standing)
        raise
    return Scored(sequence, source, token_ids, await _scores_of(scorer, sequence))


async def prompt_log_probs(call: RequestContext, model: Model, scorer: Engine, prompt: Source) -> list[float]:
    """Return log-probabilities of all tokens of a prompt but the first. Raises as `score` does."""
    ids = prompt.array
    if len(ids) == 1:
        return []
    given = GivenAnswer(ids[:-1], None, ids[1:], model.manifest.text.max_total_tokens)
    log_probs: list[float] = (await promised_scores(call, scorer, given)).log_probs.tolist()
    return log_probs


async def promised_scores(call: RequestContext, scorer: Engine, given: GivenAnswer) -> Scores:
    """Wait for the scores of what a finished answer has. Raises as `score` does.

    It has passed the bounds of the engine that has answered. The answer is not lost to those of the scorer.
    """
    sequence = call.sequence(given, is_counted=True)
    # It waits from now on. Before, its answer took its time.
    sequence.times.accepted = time.monotonic()
    scorer.submit(sequence, is_promised=True)
    return await _scores_of(scorer, sequence)


async def _scores_of(scorer: Engine, sequence: Sequence) -> Scores:
    """Wait for the scores of a sequence that was submitted."""
    try:
        await sequence.reply.done()
    finally:
        scorer.cancel(sequence)
    assert sequence.scores is not None, "an answer was scored without its scores. This is a bug."
    return sequence.scores
