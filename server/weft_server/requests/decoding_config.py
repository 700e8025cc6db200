"""A request's Decoding, checked against the model's limits and with every default filled in."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_proto.decoding import LENGTH_PENALTY, MAX_STOP_BYTES, MAX_STOP_STRINGS, SAMPLING
from weft_proto.v1 import common_pb2
from weft_server.errors import BundleError, InvalidRequest, require
from weft_server.requests.phrase_reader import PhraseReader
from weft_server.requests.processors_config import RequestBounds, checked, rules_of, token_set
from weft_server.sampling.beam_search import most_beams
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding, EarlyStopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.paged.block_pool import PoolSize
    from weft_server.logits_processors.base import Rule
    from weft_server.logits_processors.constraint import Constraint
    from weft_server.models.model import DecodingLimits
    from weft_server.preprocessing.tokenizer import Tokenizer

DEFAULT_BEAMS = 4
EARLY_STOPPING = {
    EarlyStopping.HEURISTIC: common_pb2.EARLY_STOPPING_HEURISTIC,
    EarlyStopping.FULL: common_pb2.EARLY_STOPPING_FULL,
    EarlyStopping.NEVER: common_pb2.EARLY_STOPPING_NEVER,
}
_STOPPING_OF = {proto: stopping for stopping, proto in EARLY_STOPPING.items()} | {
    common_pb2.EARLY_STOPPING_UNSPECIFIED: EarlyStopping.HEURISTIC
}
# Fields of which a request's own take the place of all of the model's: lists, and messages.
_LISTS = ("bias", "banned")
_WHOLE = ("suppressed", "suppressed_first", "length_decay", "stop_token_ids", "prefix")
_IDS = ("forced_first_id", "forced_last_id")
# A row with more rules, or with a cut that may sort all tokens, costs its lane a multiple of what others do. See
# docs/decisions/processed-candidates.md.
MOST_CHEAP_RULES = 7
# Every language holds integers of this number of bits exactly, also one whose only numbers are doubles.
DRAWN_SEED_BITS = 53


class Forced(NamedTuple):
    """Tokens that come whatever the model says: the first ones, and the last that is allowed."""

    first: tuple[int, ...]
    last: int | None


def resolve_decoding(
    requested: common_pb2.Decoding,
    manifest: bundle_pb2.BundleManifest,
    widths: DecodingLimits,
    num_prompt_tokens: int,
    tokenizer: Tokenizer | None = None,
    constrain: Callable[..., Constraint] | None = None,
    rule: Rule | None = None,
) -> Decoding:
    """Check what a request asked for, and fill in the defaults.

    A prompt of `num_prompt_tokens` shares the cache with its answer. For other tasks the number is 0. Texts need the
    `tokenizer` of the model's answers. A constraint needs what builds it, as Grammars.build does. Answers also
    keep to the `rule`.

    Raises:
        InvalidRequest: a number is outside its range, or two settings contradict each other. Nothing is clamped.
        CannotConstrain: this server cannot follow a constraint with this model.
    """
    max_new = _max_new_tokens(requested, manifest, num_prompt_tokens)
    asks_least = requested.HasField("min_new_tokens")
    min_new = requested.min_new_tokens if asks_least else min(manifest.decoding.min_new_tokens, max_new)
    if min_new > max_new:
        raise InvalidRequest("decoding.min_new_tokens", f"must be at most max_new_tokens, {max_new}, not {min_new}")
    _check_stop(requested)
    chosen = _strategy(requested, manifest.decoding)
    kind = chosen.WhichOneof("strategy")
    sampling = _sampling(chosen.sampling) if kind == "sampling" else None

    text = manifest.text
    changes = changes_of(requested, manifest.decoding)
    if text.HasField("forced_end_id") and not changes.HasField("forced_last_id"):
        changes.forced_last_id = text.forced_end_id
    reader = PhraseReader(tokenizer, text.target_vocab_size)
    _cut_default(changes, requested, reader, max_new)
    stop_ids = frozenset(token_set(changes, "stop_token_ids", reader)) - set(text.end_ids)
    end_ids = (*text.end_ids, *stop_ids)
    beams = None
    if kind == "beams":
        # Each end token beside the model's own may take a beam.
        num_decided = min(widths.max_beams, most_beams(widths.num_candidates, len(end_ids)))
        beams = _beams(requested, chosen.beams, num_decided, len(stop_ids))
    num_outputs = _num_outputs(requested, chosen, beams, widths.max_outputs)
    _check_pool(widths.pool, num_prompt_tokens, max_new, num_outputs, beams)
    forced = _forced(changes, reader, max_new, end_ids)
    if kind == "alternatives" and len(forced.first) + (forced.last is not None) >= max_new:
        # All tokens are forced, so all answers would be the same.
        num_outputs = 1
    constraint = None
    if requested.HasField("constraint"):
        assert constrain is not None, "nothing builds this constraint. This is a bug."
        begins_field = "decoding.prefix" if changes.HasField("prefix") else "decoding.forced_first_id"
        constraint = constrain(
            requested.constraint,
            stop_ids=stop_ids,
            last_id=forced.last,
            begins=forced.first,
            begins_field=begins_field,
        )
        changes.constraint.CopyFrom(requested.constraint)
    has_source = manifest.task == common_pb2.TASK_TRANSLATE and text.source_vocab_size == text.target_vocab_size
    bounds = RequestBounds(end_ids, min_new, max_new, len(forced.first), has_source)
    rules = rules_of(changes, reader, bounds, constraint, rule)
    return Decoding(
        max_new,
        min_new,
        tuple(requested.stop),
        sampling,
        rules=rules,
        beams=beams,
        alternatives=kind == "alternatives",
        num_outputs=num_outputs,
        stop_ids=stop_ids,
        forced_ids=forced.first,
        num_unscored=len(forced.first) if changes.HasField("prefix") else 0,
        forced_last_id=forced.last,
        changes=changes,
        is_costly=len(rules) > MOST_CHEAP_RULES or _sorts(requested.sampling),
    )


def verify_default(manifest: bundle_pb2.BundleManifest, widths: DecodingLimits) -> None:
    """Raise BundleError if the defaults are not what a request may ask for. A constraint is a request's own."""
    require(not manifest.decoding.HasField("constraint"), "decoding.constraint cannot be a model's default")
    try:
        resolve_decoding(common_pb2.Decoding(), manifest, widths, 1)
    except InvalidRequest as error:
        raise BundleError(error.message) from error


def shown_default(manifest: bundle_pb2.BundleManifest, widths: DecodingLimits) -> common_pb2.Decoding:
    """Return what an empty Decoding resolves to, but for a seed that is drawn."""
    shown = common_pb2.Decoding()
    shown.CopyFrom(manifest.decoding)
    default = resolve_decoding(common_pb2.Decoding(), manifest, widths, 1)
    shown.num_outputs = default.num_outputs
    if default.beams:
        shown.beams.num_beams = default.beams.num_beams
        shown.beams.length_penalty = default.beams.length_penalty
        shown.beams.early_stopping = EARLY_STOPPING[default.beams.early_stopping]
    elif not shown.WhichOneof("strategy"):
        shown.greedy.SetInParent()
    if default.forced_last_id is not None:
        shown.forced_last_id = default.forced_last_id
    return shown


def default_width(manifest: bundle_pb2.BundleManifest) -> int:
    """Return how many rows a request takes that asks for nothing."""
    default = manifest.decoding
    if default.WhichOneof("strategy") == "beams":
        return default.beams.num_beams if default.beams.HasField("num_beams") else DEFAULT_BEAMS
    return max(default.num_outputs, 1)


def changes_of(requested: Any, default: Any) -> common_pb2.Decoding:
    """Return the fields that change scores or tokens, with what the request leaves unset of the model's own."""
    changes = common_pb2.Decoding()
    for name in _LISTS:
        getattr(changes, name).MergeFrom(getattr(requested, name) or getattr(default, name))
    for name in _WHOLE:
        if (source := requested if requested.HasField(name) else default).HasField(name):
            getattr(changes, name).CopyFrom(getattr(source, name))
    for name in _IDS:
        if (source := requested if requested.HasField(name) else default).HasField(name):
            setattr(changes, name, getattr(source, name))
    for source in (default, requested):
        if source.HasField("penalties"):
            changes.penalties.MergeFrom(source.penalties)
    return changes


def _cut_default(changes: common_pb2.Decoding, asked: common_pb2.Decoding, reader: PhraseReader, max_new: int) -> None:
    """Cut what the model's own settings have of an answer longer than this one. The request has not asked for it."""
    if changes.HasField("length_decay") and not asked.HasField("length_decay"):
        # Behind the last token it never applies.
        changes.length_decay.start = min(changes.length_decay.start, max_new)
    if changes.HasField("prefix") and not asked.HasField("prefix"):
        tokens = reader.prefix(changes.prefix)[: max_new - changes.HasField("forced_first_id")]
        changes.ClearField("prefix")
        if tokens:
            changes.prefix.token_ids.ids[:] = tokens


def _forced(changes: common_pb2.Decoding, reader: PhraseReader, max_new: int, end_ids: tuple[int, ...]) -> Forced:
    """Return what comes whatever the model says. A forced first token comes before a prefix."""
    last = changes.forced_last_id if changes.HasField("forced_last_id") else None
    first = (changes.forced_first_id,) if changes.HasField("forced_first_id") else ()
    reader.single(first, "decoding.forced_first_id")
    reader.single(() if last is None else (last,), "decoding.forced_last_id")
    prefix = reader.prefix(changes.prefix) if changes.HasField("prefix") else ()
    for field, tokens in (("decoding.forced_first_id", first), ("decoding.prefix", prefix)):
        if wrong := set(tokens) & set(end_ids):
            why = f"has the token {min(wrong)}, which ends an answer, by decoding.stop_token_ids or for the model"
            raise InvalidRequest(field, why)
    if prefix and len(first) + len(prefix) > max_new:
        why = f"has {len(first) + len(prefix)} tokens, more than decoding.max_new_tokens, {max_new}"
        raise InvalidRequest("decoding.prefix", why)
    if first and not prefix and last is not None and max_new == 1:
        # One token cannot be both. As in transformers, it is the last one.
        first = ()
    return Forced((*first, *prefix), last)


def _strategy(requested: common_pb2.Decoding, default: common_pb2.Decoding) -> common_pb2.Decoding:
    """Return the request's strategy and number of outputs, with what it leaves unset of the model's own.

    The model's own counts if the request names no strategy, or the same one.
    """
    kind, own = requested.WhichOneof("strategy"), default.WhichOneof("strategy")
    merged = common_pb2.Decoding()
    if kind in (None, own):
        if own:
            getattr(merged, own).CopyFrom(getattr(default, own))
        if default.HasField("num_outputs"):
            merged.num_outputs = default.num_outputs
    if kind:
        getattr(merged, kind).MergeFrom(getattr(requested, kind))
        getattr(merged, kind).SetInParent()
    if requested.HasField("num_outputs"):
        merged.num_outputs = requested.num_outputs
    return merged


def _beams(requested: common_pb2.Decoding, merged: common_pb2.Beams, num_decided: int, num_stop_ids: int) -> Beams:
    """Check how a search is to be. `merged` has what the request leaves unset of the model's own.

    The model's own number of beams gives way to a request's end tokens.
    """
    num_beams = merged.num_beams if merged.HasField("num_beams") else min(DEFAULT_BEAMS, num_decided)
    if requested.HasField("stop_token_ids") and not requested.beams.HasField("num_beams"):
        num_beams = min(num_beams, num_decided)
    if num_stop_ids and not num_decided:
        why = f"has {num_stop_ids} tokens, which leave no candidates for decoding.beams"
        raise InvalidRequest("decoding.stop_token_ids", why)
    if not 1 <= num_beams <= num_decided:
        why = f" with {num_stop_ids} decoding.stop_token_ids" if num_stop_ids else ""
        raise InvalidRequest("decoding.beams.num_beams", f"must be 1..{num_decided}{why}, not {num_beams}")
    penalty = checked(LENGTH_PENALTY, LENGTH_PENALTY.of(merged))
    if merged.early_stopping not in _STOPPING_OF:
        raise InvalidRequest("decoding.beams.early_stopping", f"has no value {merged.early_stopping}")
    return Beams(num_beams, penalty, _STOPPING_OF[merged.early_stopping])


def _num_outputs(
    requested: common_pb2.Decoding, chosen: common_pb2.Decoding, beams: Beams | None, max_outputs: int
) -> int:
    """How many answers there are. The model's own number gives way to the beams that a request asks for."""
    number = chosen.num_outputs if chosen.HasField("num_outputs") else 1
    if beams and not requested.HasField("num_outputs"):
        return min(number, beams.num_beams)
    limit, why = max_outputs, ""
    if beams:
        limit, why = beams.num_beams, ", as decoding.beams.num_beams says"
    elif chosen.WhichOneof("strategy") not in ("sampling", "alternatives"):
        limit, why = 1, " with decoding.greedy, which has a single answer"
    if not 1 <= number <= limit:
        range_ = "1" if limit == 1 else f"1..{limit}"
        raise InvalidRequest("decoding.num_outputs", f"must be {range_}{why}, not {number}")
    return number


def _max_new_tokens(requested: common_pb2.Decoding, manifest: bundle_pb2.BundleManifest, num_prompt: int) -> int:
    room = manifest.text.max_total_tokens - num_prompt
    limit = min(manifest.text.max_new_tokens, room)
    if not requested.HasField("max_new_tokens"):
        return min(manifest.decoding.max_new_tokens, limit)
    asked = requested.max_new_tokens
    if not 1 <= asked <= limit:
        why = f", what {num_prompt} prompt tokens leave" if num_prompt and room < manifest.text.max_new_tokens else ""
        raise InvalidRequest("decoding.max_new_tokens", f"must be 1..{limit}{why}, not {asked}")
    return asked


def _check_pool(pool: PoolSize | None, num_prompt: int, max_new: int, num_outputs: int, beams: Beams | None) -> None:
    """Refuse rows that could not be at their ends together, even if nobody else were there."""
    width = beams.num_beams if beams else num_outputs
    if pool is None or (need := pool.most(num_prompt, max_new, width)) <= pool.num_blocks:
        return
    field = "decoding.beams.num_beams" if beams else "decoding.num_outputs"
    why = f"{width} times {max_new} new tokens behind {num_prompt} fill {need} blocks of the cache"
    raise InvalidRequest(field, f"must be less, or max_new_tokens: {why}, which has {pool.num_blocks}")


def _sorts(requested: common_pb2.Sampling) -> bool:
    """Whether a request asks for a cut that may have to look at all tokens in their order. A model's own may be."""
    cuts = requested.typical_p if requested.HasField("typical_p") else 1, requested.epsilon_cutoff, requested.eta_cutoff
    return cuts != (1, 0, 0)


def _check_stop(requested: common_pb2.Decoding) -> None:
    if len(requested.stop) > MAX_STOP_STRINGS:
        raise InvalidRequest("decoding.stop", f"must be at most {MAX_STOP_STRINGS} strings, not {len(requested.stop)}")
    for index, stop in enumerate(requested.stop):
        if not 1 <= len(stop.encode()) <= MAX_STOP_BYTES:
            raise InvalidRequest(f"decoding.stop[{index}]", f"must be 1..{MAX_STOP_BYTES} bytes of UTF-8")


def _sampling(requested: common_pb2.Sampling) -> Sampling:
    asked = {each.name: checked(each, each.of(requested)) for each in SAMPLING if each.name != "seed"}
    seed = requested.seed if requested.HasField("seed") else secrets.randbits(DRAWN_SEED_BITS)
    return Sampling(**asked, seed=seed)
