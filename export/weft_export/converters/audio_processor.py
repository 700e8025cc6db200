"""preprocessor_config.json and generation_config.json of a Whisper as an AudioSpec, and its class's own defaults."""

import json
from collections.abc import Sequence
from typing import Any

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.generation import GENERATION_FILE
from weft_export.converters.keys import check_keys
from weft_export.converters.processor_keys import SAMPLE_RATE, SOUND_KEYS, read_processor
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.errors import CheckpointError
from weft_export.families.speech import STRIDE
from weft_proto.bundle_rules import LIMITS
from weft_proto.sound import num_timestamps, size_fault
from weft_proto.v1 import bundle_pb2

_TRANSCRIBE, _TRANSLATE = "transcribe", "translate"
_FORCED = "forced_decoder_ids"
# Sizes of a spec, by their keys there.
_SIZES = {"num_mels": "feature_size", "fft_size": "n_fft", "hop_size": "hop_length"}
# Whisper's words for its languages, and the codes in their tokens. A space is written as _.
_NAMES = """
english en chinese zh german de spanish es russian ru korean ko french fr japanese ja portuguese pt turkish tr
polish pl catalan ca dutch nl arabic ar swedish sv italian it indonesian id hindi hi finnish fi vietnamese vi
hebrew he ukrainian uk greek el malay ms czech cs romanian ro danish da hungarian hu tamil ta norwegian no thai th
urdu ur croatian hr bulgarian bg lithuanian lt latin la maori mi malayalam ml welsh cy slovak sk telugu te persian fa
latvian lv bengali bn serbian sr azerbaijani az slovenian sl kannada kn estonian et macedonian mk breton br basque eu
icelandic is armenian hy nepali ne mongolian mn bosnian bs kazakh kk albanian sq swahili sw galician gl marathi mr
punjabi pa sinhala si khmer km shona sn yoruba yo somali so afrikaans af occitan oc georgian ka belarusian be tajik tg
sindhi sd gujarati gu amharic am yiddish yi lao lo uzbek uz faroese fo haitian_creole ht pashto ps turkmen tk
nynorsk nn maltese mt sanskrit sa luxembourgish lb myanmar my tibetan bo tagalog tl malagasy mg assamese as tatar tt
hawaiian haw lingala ln hausa ha bashkir ba javanese jw sundanese su cantonese yue burmese my valencian ca flemish nl
haitian ht letzeburgesch lb pushto ps panjabi pa moldavian ro moldovan ro sinhalese si castilian es mandarin zh
"""
_WORDS = _NAMES.split()
CODES = {name.replace("_", " "): code for name, code in zip(_WORDS[::2], _WORDS[1::2], strict=True)}
"""The code of each name: the `en` of `english`."""


def add_defaults(spec: bundle_pb2.AudioSpec, hf: HfCheckpoint) -> None:
    """Put to a spec, which has its tokens, what a request need not say.

    Raises:
        CheckpointError: a file asks for what the model has no token for, or for a beginning that no request has.
    """
    given = read_object_if_there(hf.directory / GENERATION_FILE)
    language, task = given.get("language"), given.get("task")
    forced = hf.fields.raw(_FORCED)
    forced = given[_FORCED] if given.get(_FORCED) is not None else forced
    if language is not None:
        spec.default_language = _tag(language, spec)
    if task is not None:
        if task not in _tasks(spec).values():
            raise _wrong("task", task, "the model has a token for transcribe, and may have one for translate")
        spec.default_to_english = task == _TRANSLATE
    # Who says a language or a task has the newer files, and the older key counts no more.
    tokens = _beginning(forced) if language is None and task is None and forced else []
    if tokens:
        _follow(tokens, spec)
    elif language is None and task is None:
        spec.default_without_task = spec.HasField("transcribe_id")
    if given.get("return_timestamps") is True:
        if not spec.HasField("first_timestamp_id"):
            raise _wrong("return_timestamps", True, "the model tells no moments")
        spec.default_timestamps = True


def _tasks(spec: bundle_pb2.AudioSpec) -> dict[int, str]:
    """Return the tasks by their tokens."""
    tasks = {}
    if spec.HasField("transcribe_id"):
        tasks[spec.transcribe_id] = _TRANSCRIBE
    if spec.HasField("translate_id"):
        tasks[spec.translate_id] = _TRANSLATE
    return tasks


def _tag(language: object, spec: bundle_pb2.AudioSpec) -> str:
    """Return the tag of a language that is named, coded or written as its token."""
    word = str(language).lower()
    tags = {f"<|{each.tag}|>": each.tag for each in spec.languages}
    token = word if word in tags else f"<|{CODES.get(word, word)}|>"
    if token not in tags:
        raise _wrong("language", language, "lang_to_id has no token for it")
    return tags[token]


def _beginning(forced: object) -> list[int | None]:
    """Return the tokens behind the start, each at its place from 1 on; none where they begin elsewhere."""
    pairs: list[Any] = forced if isinstance(forced, list) else [None]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise _wrong(_FORCED, forced, "it must be pairs of a place and a token")
    if pairs[0][0] == 1 and [place for place, _ in pairs] != list(range(1, len(pairs) + 1)):
        raise _wrong(_FORCED, forced, "its places must be 1, 2, 3 and so on")
    return [token for _, token in pairs] if pairs[0][0] == 1 else []


def _follow(forced: Sequence[int | None], spec: bundle_pb2.AudioSpec) -> None:
    """Read a language, a task and that there are no moments off the tokens that an answer begins with."""
    left = list(forced)
    languages = {each.token_id: each.tag for each in spec.languages}
    if languages and left:
        token = left.pop(0)
        if token is not None:
            spec.default_language = languages.get(token, "")
        if token is not None and not spec.default_language:
            raise _wrong(_FORCED, list(forced), "its first token is that of no language of lang_to_id")
    tasks = _tasks(spec)
    if tasks:
        task = tasks.get(left.pop(0) or 0) if left else None
        if task is None:
            raise _wrong(_FORCED, list(forced), "no task of task_to_id follows")
        spec.default_to_english = task == _TRANSLATE
    silent = [spec.no_timestamps_id] if spec.HasField("no_timestamps_id") else []
    if left and left != silent:
        raise _wrong(_FORCED, list(forced), f"{GENERATION_FILE} does not say what these tokens are")


def _wrong(name: str, value: object, complaint: str) -> CheckpointError:
    return CheckpointError(f"{name} is {value!r:.60}, which cannot be followed: {complaint}")


def read_audio_spec(hf: HfCheckpoint) -> bundle_pb2.AudioSpec:
    """Return how recordings become energies, and what answers begin with.

    Raises:
        CheckpointError: no file says it, or it says what cannot be done. The field is named.
    """
    place, given = read_processor(hf, "feature_extractor", "audio_processor")
    check_keys(place, given, SOUND_KEYS)
    for name in given.keys() - SOUND_KEYS.keys():
        raise CheckpointError(f"{place}: {name} is not supported")
    hop = max(1, _whole(given, "hop_length", 160))
    seconds = _whole(given, "chunk_length", 30)
    num_frames = seconds * SAMPLE_RATE // hop
    spec = bundle_pb2.AudioSpec(
        sample_rate=SAMPLE_RATE,
        num_mels=_whole(given, "feature_size", 80),
        fft_size=_whole(given, "n_fft", 400),
        hop_size=hop,
        num_frames=num_frames,
        num_positions=num_frames // STRIDE,
    )
    _check_sizes(place, spec)
    _add_tokens(spec, hf)
    add_defaults(spec, hf)
    return spec


def _check_sizes(place: str, spec: bundle_pb2.AudioSpec) -> None:
    """Raise CheckpointError for sizes that no bundle may have, by their keys."""
    for name, key in _SIZES.items():
        value, limit = getattr(spec, name), LIMITS["AudioSpec"][name]
        if not limit.minimum <= value <= (limit.maximum or value):
            raise CheckpointError(f"{place}: {key} is {value}, not in [{limit.minimum:.0f}, {limit.maximum:.0f}]")
    if fault := size_fault(spec):
        raise CheckpointError(f"{place}: n_fft, hop_length and chunk_length do not go together: {fault}")


def _add_tokens(spec: bundle_pb2.AudioSpec, hf: HfCheckpoint) -> None:
    """Take the tokens of languages and tasks from generation_config.json. A model of English alone has none."""
    given = read_object_if_there(hf.directory / GENERATION_FILE)
    for token, token_id in sorted(_table(given, "lang_to_id").items()):
        spec.languages.add(tag=token.strip("<|>"), token_id=token_id)
    tasks = _table(given, "task_to_id")
    if "transcribe" in tasks:
        spec.transcribe_id = tasks["transcribe"]
    if "translate" in tasks:
        spec.translate_id = tasks["translate"]
    if given.get("no_timestamps_token_id") is not None:
        spec.no_timestamps_id = _whole(given, "no_timestamps_token_id", 0)
        _add_timestamps(spec, hf, given)


def _add_timestamps(spec: bundle_pb2.AudioSpec, hf: HfCheckpoint, given: dict[str, Any]) -> None:
    """Take the tokens behind that for no moments: one for each place of the memory and one for the end."""
    first = spec.no_timestamps_id + 1
    if first + spec.num_positions < hf.fields.whole("vocab_size", 51865):
        spec.first_timestamp_id, spec.timestamp_samples = first, spec.hop_size * STRIDE
        if given.get("max_initial_timestamp_index") is not None:
            spec.max_first_timestamp = min(_whole(given, "max_initial_timestamp_index", 0), spec.num_positions)


def without_timestamps(tokenizer: bytes, spec: bundle_pb2.AudioSpec) -> bytes:
    """Return a tokenizer.json in which tokens that say moments are special, so that they are no text."""
    content = json.loads(tokenizer)
    timestamps = range(spec.first_timestamp_id, spec.first_timestamp_id + num_timestamps(spec))
    for token in content.get("added_tokens", ()):
        token["special"] |= token["id"] in timestamps
    return json.dumps(content, ensure_ascii=False).encode()


def _table(given: dict[str, Any], name: str) -> dict[str, int]:
    table = given.get(name) or {}
    if not isinstance(table, dict) or not all(isinstance(each, int) and 0 <= each < 2**31 for each in table.values()):
        raise CheckpointError(f"{GENERATION_FILE}: {name} must name token ids")
    return table


def _whole(given: dict[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise CheckpointError(f"{name} is {value!r:.60}: it must be a whole number")
    return value
