"""What a checkpoint says about writing: where an answer begins and ends, and what is never or always written."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weft_export.converters.keys import is_set
from weft_export.converters.settings import GENERATION_KEYS, GenerationSettings
from weft_export.converters.text.json_file import read_object, read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.v1 import common_pb2

GENERATION_FILE = "generation_config.json"
# Ids that config.json says too, others, and lengths.
_IDS = ("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id")
_MORE_IDS = ("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens")
_LENGTHS = ("max_new_tokens", "min_new_tokens", "max_length", "min_length")
# More ids, or phrases, than any file has.
_MOST = 100_000


@dataclass(frozen=True)
class Generation:
    """Token ids, and settings of generate().

    end_ids: each of them ends an answer.
    start_id: what a decoder with a source begins with; None where the checkpoint says none.
    bos_id: what a text begins with, and then a decoder too.
    forced_id: the first token after the start, whatever the logits say.
    forced_end_id: the last one where an answer becomes as long as it may.
    banned: tokens that are never written, by the bias of the model's head.
    max_new_tokens, min_new_tokens: how long an answer may be, and how long it is at least.
    max_length, min_length: the same, with what generate() begins with.
    decoding: the settings that a request may have too; what it leaves unset is as here.
    not_carried: "guidance_scale is 1.5", ...: settings that our answers do not follow.
    says_start: whether a file says decoder_start_token_id.
    notes: what else a person should know, a sentence each.
    """

    end_ids: tuple[int, ...] = ()
    pad_id: int | None = None
    start_id: int | None = None
    says_start: bool = False
    bos_id: int | None = None
    forced_id: int | None = None
    forced_end_id: int | None = None
    banned: tuple[int, ...] = ()
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    max_length: int | None = None
    min_length: int | None = None
    decoding: common_pb2.Decoding = field(default_factory=common_pb2.Decoding)
    not_carried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_generation(
    directory: Path, config: dict[str, Any], fixed: dict[str, Any], *, reads_source: bool, has_bias: bool
) -> Generation:
    """Read generation_config.json; where there is none, config.json says the same.

    They are not mixed, but that config.json still says an end, padding or a start that the other file leaves out. A
    note says so of ends, where generate() would have none.

    fixed: what stands above both. Where they say otherwise, it is left out.
    reads_source: whether the model reads a text before it writes.
    has_bias: whether its head can have a bias.

    Raises:
        CheckpointError: a field is of another type.
    """
    path = directory / GENERATION_FILE
    given = read_object(path) if path.exists() else config
    _check_types(path.name if path.exists() else "config.json", given)
    _check_ids("config.json", config, _IDS)
    known = GENERATION_KEYS if path.exists() else given.keys()
    generation = _read({**given, **fixed}, config, reads_source=reads_source, has_bias=has_bias)
    left = [_told(name, value) for name, value in given.items() if _is_left(name, value, known, fixed)]
    return replace(generation, not_carried=(*generation.not_carried, *left))


def fixed_generation(directory: Path, fixed: dict[str, Any]) -> Generation:
    """Return what stands fixed, for a class that writes by no file. What generation_config.json asks for is left out.

    Raises:
        CheckpointError: a field is of another type.
    """
    said = read_object_if_there(directory / GENERATION_FILE)
    _check_types(GENERATION_FILE, said)
    asked = {name: value for name, value in said.items() if name in GENERATION_KEYS}

    def read(without: str | None) -> Generation:
        given = {name: value for name, value in asked.items() if name != without}
        return _read({**given, **fixed}, fixed, reads_source=False, has_bias=True)

    whole = read(None)
    left = [
        _told(name, value)
        for name, value in said.items()
        if _is_left(name, value, GENERATION_KEYS, fixed) or (name in asked and read(name) != whole)
    ]
    return replace(_read(fixed, fixed, reads_source=False, has_bias=True), not_carried=tuple(left))


def _is_left(name: str, value: Any, known: Collection[str], fixed: dict[str, Any]) -> bool:
    """Whether a key says something that no answer follows: it is not known, or stands fixed otherwise."""
    return is_set(value) and (name not in known or value != fixed.get(name, value))


def _told(name: str, value: Any) -> str:
    return f"{name} is {value!r:.40}"


def _read(given: dict[str, Any], config: dict[str, Any], *, reads_source: bool, has_bias: bool) -> Generation:
    ends = _ids(given, "eos_token_id") or _ids(config, "eos_token_id")
    notes = []
    if ends and not _ids(given, "eos_token_id"):
        notes.append(
            f"{GENERATION_FILE} has no eos_token_id, so generate() ends nowhere; answers end as config.json says"
        )
    banned = _banned(given, ends)
    settings = GenerationSettings(given, reads_source=reads_source)
    # A bias costs no step anything. But it changes the probabilities of the other tokens, which a search adds up:
    # generate() takes them before its bans, unless it renormalises behind them.
    in_head = has_bias and (not settings.searches or given.get("renormalize_logits") is True)
    if banned and not in_head:
        in_head = not settings.suppress(banned) and has_bias
    # generate() begins with this where the file says no start, whatever config.json says.
    said, of_config = _one(given, "decoder_start_token_id"), _one(config, "decoder_start_token_id")
    starts = (said, _one(given, "bos_token_id"), of_config)
    return Generation(
        end_ids=ends,
        pad_id=_one(given, "pad_token_id", _one(config, "pad_token_id")),
        start_id=next((each for each in starts if each is not None), None),
        says_start=said is not None or of_config is not None,
        bos_id=_one(given, "bos_token_id", _one(config, "bos_token_id")),
        forced_id=_one(given, "forced_bos_token_id"),
        forced_end_id=_one(given, "forced_eos_token_id"),
        banned=banned if in_head else (),
        max_new_tokens=_one(given, "max_new_tokens"),
        min_new_tokens=_one(given, "min_new_tokens"),
        max_length=_one(given, "max_length"),
        min_length=_one(given, "min_length"),
        decoding=settings.decoding,
        not_carried=tuple(settings.left),
        notes=tuple(notes),
    )


def _check_types(place: str, given: dict[str, Any]) -> None:
    """Raise CheckpointError for a key of a file that has another type than its name says."""
    _check_ids(place, given, (*_IDS, *_MORE_IDS))
    for name in _LENGTHS:
        if given.get(name) not in (None, -1) and not _is_id(given[name]):
            raise CheckpointError(f"{place}: {name} is {given[name]!r:.60}: it must be a number of tokens")
    phrases = given.get("bad_words_ids") or []
    if not isinstance(phrases, list) or len(phrases) > _MOST:
        raise CheckpointError(f"{place}: bad_words_ids is {phrases!r:.60}: it must be a list of lists of token ids")


def _check_ids(place: str, given: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        ids = _listed(given.get(name))
        # -1 is how some say that there is none.
        if len(ids) > _MOST or not all(_is_id(each) or each == -1 for each in ids):
            raise CheckpointError(f"{place}: {name} is {given[name]!r:.60}: it must be token ids")


def _banned(given: dict[str, Any], ends: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tokens that are never written, in order."""
    banned = set(_ids(given, "suppress_tokens"))
    for phrase in given.get("bad_words_ids") or []:
        if phrase in [[end] for end in ends]:
            continue  # transformers does not forbid an end either
        if isinstance(phrase, list) and len(phrase) == 1 and _is_id(phrase[0]):
            banned.add(phrase[0])
    return tuple(sorted(banned))


def _one(given: dict[str, Any], name: str, default: int | None = None) -> int | None:
    ids = _ids(given, name)
    return ids[0] if ids else default


def _ids(given: dict[str, Any], name: str) -> tuple[int, ...]:
    return tuple(each for each in _listed(given.get(name)) if each != -1)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
