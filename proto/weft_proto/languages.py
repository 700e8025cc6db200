"""The languages of a model: which a request means, and what the model is given for them, in token ids.

Exporter and server both ask here. So both give a model the same ids for a request, and refuse the same manifests.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weft_proto.v1 import bundle_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft_proto.tasks import Task

# The form of a BCP-47 tag (RFC 5646), such as `en`, `zh-Hant` or `pt-BR`. Nobody asks whether its parts are registered.
TAG = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")
# A refusal names no more languages than this.
MAX_NAMES = 10
# What a language is given that `text.languages` does not have.
_NOTHING = bundle_pb2.Language()


class Frame(NamedTuple):
    """What stands around the ids of one request.

    before: in front of the ids of its source.
    after: behind them.
    prefix: what the decoder is fed behind its start token, before the first token that is chosen.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    prefix: tuple[int, ...] = ()


class LanguageError(ValueError):
    """A request does not say which language it means, or means one that the model has not.

    The sentence goes on from the name of `field`, which is source_language or target_language.
    """

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class Languages:
    """The languages of one model. Tags are compared without regard to case."""

    def __init__(self, text: bundle_pb2.TextSpec) -> None:
        # What a request without languages is given.
        self.plain = Frame(prefix=tuple(text.prefix_ids))
        self._sources = {tag.lower(): tag for tag in text.source_languages}
        self._targets = {tag.lower(): tag for tag in text.target_languages}
        self._given = {language.tag.lower(): language for language in text.languages}

    @property
    def longest_prefix(self) -> int:
        """How many ids the longest prefix has."""
        prefixes = [len(language.target_prefix) for language in self._given.values()]
        return len(self.plain.prefix) + max(prefixes, default=0)

    @property
    def most_added(self) -> int:
        """The most ids that can stand around a source."""
        sources = [len(language.source_before) + len(language.source_after) for language in self._given.values()]
        targets = [len(language.target_before) for language in self._given.values()]
        return max(sources, default=0) + max(targets, default=0)

    def frame(self, source: str, target: str) -> Frame:
        """Return what a request is given whose languages have these tags. Empty means the only one there is.

        Raises:
            LanguageError: a tag is not listed, or there are several and none is named.
        """
        source_given = self._given.get(known_tag("source_language", source, self._sources), _NOTHING)
        target_given = self._given.get(known_tag("target_language", target, self._targets), _NOTHING)
        return Frame(
            (*target_given.target_before, *source_given.source_before),
            tuple(source_given.source_after),
            (*self.plain.prefix, *target_given.target_prefix),
        )


def check_languages(text: bundle_pb2.TextSpec, task: Task) -> None:
    """Raise ValueError, with a sentence that names the field, unless languages, prefix and forced end fit the model."""
    for field in ("source_languages", "target_languages"):
        _check_tags(f"text.{field}", getattr(text, field))
    _check_tags("text.languages", [language.tag for language in text.languages])
    _require(task.takes_language or not text.languages, "text.languages are for translate")
    _require(task.has_start or not text.prefix_ids, "text.prefix_ids are for translate and caption")
    forced = text.HasField("forced_end_id")
    _require(task.has_start or not forced, "text.forced_end_id is for translate and caption")
    _require(
        not forced or text.forced_end_id in text.end_ids,
        f"text.forced_end_id {text.forced_end_id} is not one of text.end_ids",
    )
    if not task.has_start:
        return
    _check_ids("text.prefix_ids", text.prefix_ids, text, "target_vocab_size")
    sources = {tag.lower() for tag in text.source_languages}
    targets = {tag.lower() for tag in text.target_languages}
    for language in text.languages:
        _check_language(language, text, sources, targets)
    _check_room(text)


def _check_tags(field: str, tags: Sequence[str]) -> None:
    seen = set()
    for tag in tags:
        _require(TAG.fullmatch(tag), f"{field} has {tag!r}, which is no BCP-47 tag")
        _require(tag.lower() not in seen, f"{field} has {tag!r} twice")
        seen.add(tag.lower())


def _check_language(
    language: bundle_pb2.Language, text: bundle_pb2.TextSpec, sources: set[str], targets: set[str]
) -> None:
    name = f"text.languages: {language.tag!r}"
    listed = {"source": language.tag.lower() in sources, "target": language.tag.lower() in targets}
    _require(any(listed.values()), f"{name} is neither a source language nor a target language")
    for field, vocabulary in (
        ("source_before", "source_vocab_size"),
        ("source_after", "source_vocab_size"),
        ("target_before", "source_vocab_size"),
        ("target_prefix", "target_vocab_size"),
    ):
        ids = getattr(language, field)
        side = field.partition("_")[0]
        _require(listed[side] or not ids, f"{name} has a {field} and is no {side} language")
        _check_ids(f"{name}: its {field}", ids, text, vocabulary)


def _check_ids(name: str, ids: Iterable[int], text: bundle_pb2.TextSpec, vocabulary: str) -> None:
    size = getattr(text, vocabulary)
    for id_ in ids:
        _require(id_ < size, f"{name} has the id {id_}, and text.{vocabulary} is {size}")


def _check_room(text: bundle_pb2.TextSpec) -> None:
    languages = Languages(text)
    added, longest = languages.most_added, languages.longest_prefix
    _require(
        not added or added < text.max_source_tokens,
        f"languages add {added} ids to a source, and text.max_source_tokens is {text.max_source_tokens}",
    )
    _require(
        not longest or longest + text.max_new_tokens <= text.max_total_tokens,
        f"a prefix of {longest} ids and text.max_new_tokens {text.max_new_tokens} are more than text.max_total_tokens,"
        f" {text.max_total_tokens}",
    )


def known_tag(field: str, asked: str, known: dict[str, str]) -> str:
    """Return the key of the language that a request means; empty when the model has none.

    Raises:
        LanguageError: it names none although there are several, or one that is not known.
    """
    if not known:
        if asked:
            raise LanguageError(field, "must be empty: this model takes no language")
        return ""
    if not asked:
        if len(known) > 1:
            raise LanguageError(field, f"is required: one of {_some(known.values())}")
        return next(iter(known))
    key = asked.lower()
    if key not in known:
        raise LanguageError(field, f"must be one of {_some(known.values())}, not {asked[:32]!r}{_nearest(key, known)}")
    return key


def _some(tags: Iterable[str]) -> str:
    names = list(tags)
    more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join(names[:MAX_NAMES] + more)


def _nearest(key: str, known: dict[str, str]) -> str:
    """Name those languages that begin with the same word: `pt` and `pt-PT` for `pt-BR`. It may be that none does."""
    first = key.replace("_", "-").partition("-")[0]
    near = [tag for other, tag in known.items() if other.partition("-")[0] == first]
    return f"; the nearest is {_some(near)}" if len(near) == 1 else f"; the nearest are {_some(near)}" if near else ""


def _require(condition: object, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)
