"""What a Whisper says of language, task and moments: answers begin with the tokens that generate() begins with."""

import json

import pytest
import torch
import transformers
from hf_models import END, change_config
from test_whisper import LANGUAGES, MELS, NO_TIMES, POSITIONS, START, TASKS, VOCAB, made_whisper
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from weft_export.converters.audio_processor import CODES
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions
from weft_proto.sound import spoken_ids
from weft_proto.v1 import transcription_pb2
from weft_server.requests.transcription import transcribing_of

GERMAN, ENGLISH = LANGUAGES["<|de|>"], LANGUAGES["<|en|>"]
SAY, TRANSLATE = TASKS["transcribe"], TASKS["translate"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A random Whisper of two languages."""
    directory = tmp_path_factory.mktemp("whisper")
    made_whisper(directory)
    return directory


def changed(original, directory, *, of_config=None, **generation):
    """A copy whose generation_config.json has more, and config.json forced_decoder_ids."""
    for path in original.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    path = directory / "generation_config.json"
    # With this key, generate() reads nothing that is Whisper's own.
    path.write_text(json.dumps(json.loads(path.read_text()) | generation | {"_from_model_config": False}))
    if of_config is not None:
        change_config(directory, forced_decoder_ids=of_config)
    return directory


def our_beginning(audio, heard, **asked):
    """What a decoder is fed for a request, of which `heard` is the language that the model tells."""
    wanted = transcribing_of(transcription_pb2.TranscribeRequest(**asked), audio)
    ids = spoken_ids(audio, wanted.language or heard, to_english=wanted.to_english, timestamps=wanted.timestamps)
    return [START, *ids]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"return_timestamps": True},
        {"forced_decoder_ids": [[2, TRANSLATE]]},
        {"language": "german"},
        {"language": "English", "task": "translate"},
        {"language": "<|de|>", "task": "transcribe"},
        {"task": "translate"},
        {"task": "transcribe", "return_timestamps": True},
        {"language": "de", "forced_decoder_ids": [[1, ENGLISH], [2, TRANSLATE]]},
        {"forced_decoder_ids": [[1, None], [2, TRANSLATE]]},
        {"forced_decoder_ids": [[1, GERMAN], [2, SAY], [3, NO_TIMES]]},
        {"forced_decoder_ids": [[1, GERMAN], [2, SAY], [3, NO_TIMES]], "return_timestamps": True},
        {"of_config": [[1, GERMAN], [2, TRANSLATE]]},
        {"of_config": [[1, GERMAN], [2, TRANSLATE]], "forced_decoder_ids": [[1, ENGLISH], [2, SAY]]},
    ],
    ids=lambda files: ", ".join(f"{name} {value}" for name, value in files.items()),
)
def test_an_answer_begins_as_generate_begins_it(files, original, tmp_path):
    """Where a request says nothing: the language, or the one that the model tells; the task; whether moments follow."""
    directory = changed(original, tmp_path, **files)
    audio = convert(directory, ExportOptions(), filled=False).checkpoint.audio
    model = transformers.WhisperForConditionalGeneration.from_pretrained(directory)
    features = torch.randn(1, MELS, 2 * POSITIONS, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        told = model.detect_language(features, generation_config=model.generation_config)
        written = model.generate(features, max_new_tokens=1, return_dict_in_generate=True)
    sequences = written["sequences"][0].tolist()
    (heard,) = (name.strip("<|>") for name, token in LANGUAGES.items() if token == int(told))
    expected = our_beginning(audio, heard)
    assert sequences[: len(expected)] == expected
    assert len(sequences) <= len(expected) + 1


def test_a_request_overrules_what_the_files_say(original, tmp_path):
    """Each of the three by itself."""
    said = {"language": "german", "task": "translate", "return_timestamps": True}
    audio = convert(changed(original, tmp_path, **said), ExportOptions(), filled=False).checkpoint.audio
    assert [START, GERMAN, TRANSLATE] == our_beginning(audio, "")
    assert [START, ENGLISH, TRANSLATE] == our_beginning(audio, "", language="en")
    assert [START, GERMAN, SAY] == our_beginning(audio, "", to_english=False)
    assert [START, GERMAN, TRANSLATE, NO_TIMES] == our_beginning(audio, "", timestamps=False)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"language": "french"}, "language is 'french', which cannot be followed: lang_to_id has no token"),
        ({"task": "sing"}, "task is 'sing'"),
        ({"forced_decoder_ids": [[1, GERMAN]]}, "forced_decoder_ids is .* no task of task_to_id follows"),
        ({"forced_decoder_ids": [[1, 5], [2, SAY]]}, "forced_decoder_ids is .* that of no language"),
        ({"forced_decoder_ids": [[1, GERMAN], [3, SAY]]}, "forced_decoder_ids is .* places must be 1, 2, 3"),
        ({"forced_decoder_ids": [[1, GERMAN], [2, SAY], [3, 7]]}, "forced_decoder_ids is .* what these tokens are"),
        ({"of_config": [1, 2]}, "forced_decoder_ids is .* pairs of a place and a token"),
    ],
)
def test_a_beginning_that_no_request_has_is_refused(files, complaint, original, tmp_path):
    """By the name of the key."""
    with pytest.raises(CheckpointError, match=complaint):
        convert(changed(original, tmp_path, **files), ExportOptions(), filled=False)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [START, GERMAN]),
        ({"language": "de"}, [START, GERMAN, SAY]),
        ({"to_english": False}, [START, GERMAN, SAY]),
        ({"to_english": True}, [START, GERMAN, TRANSLATE]),
    ],
    ids=str,
)
def test_no_token_says_the_task_where_nothing_does(asked, expected, original, tmp_path):
    """No file, and no request by its language or task: generate() leaves it out, and answers have it as asked there."""
    directory = changed(original, tmp_path)
    result = convert(directory, ExportOptions(), filled=False)
    assert not any("task" in note for note in result.notes)
    assert [*expected, NO_TIMES] == our_beginning(result.checkpoint.audio, "de", **asked)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(directory)
    model.generation_config.update(lang_to_id={"<|de|>": GERMAN})
    task = {"task": "translate" if asked["to_english"] else "transcribe"} if "to_english" in asked else {}
    language = {"language": "de"} if "language" in asked else {}
    with torch.inference_mode():
        written = model.generate(
            torch.randn(1, MELS, 2 * POSITIONS), max_new_tokens=1, return_dict_in_generate=True, **task, **language
        )
    assert [*expected, NO_TIMES] == written["sequences"][0].tolist()[: len(expected) + 1]


def test_no_file_lets_it_draw(original, tmp_path):
    """Its generate() draws by its own argument alone. A note says that answers do not either."""
    said = {"language": "german", "task": "transcribe", "max_new_tokens": 9}
    asked = [{}, {"do_sample": True, "top_k": 0, "temperature": 3.0}, {"do_sample": False}]
    features = torch.randn(1, MELS, 2 * POSITIONS, generator=torch.Generator().manual_seed(0))
    written, read = [], []
    for number, more in enumerate(asked):
        (tmp_path / str(number)).mkdir()
        directory = changed(original, tmp_path / str(number), **said, **more)
        model = transformers.WhisperForConditionalGeneration.from_pretrained(directory)
        with torch.inference_mode():
            written.append(model.generate(features, return_dict_in_generate=True)["sequences"].tolist())
        read.append(convert(directory, ExportOptions(), filled=False))
    assert written[:1] * 3 == written
    assert [read[0].checkpoint.decoding] * 3 == [each.checkpoint.decoding for each in read]
    assert [False, True, False] == [
        any("do not follow: do_sample is True" in note for note in each.notes) for each in read
    ]


def test_names_of_languages_are_whispers():
    """A newer transformers with more of them makes this fail."""
    assert TO_LANGUAGE_CODE == CODES


# A token that always comes where it may: an end, so that an answer is as short as it may be.
ENDS_AT_ONCE = {"sequence_bias": [[[END], 90.0]]}
MOMENTS = list(range(NO_TIMES + 1, VOCAB))


@pytest.mark.parametrize(
    "files",
    [
        {"max_length": 7},
        {"max_new_tokens": 7},
        {"max_new_tokens": 7, "max_length": 9},
        {"max_length": 7, "forced_bos_token_id": 9},
        {"max_length": 12, "min_length": 7, **ENDS_AT_ONCE},
        {"max_length": 12, "min_length": 7, "return_timestamps": True, **ENDS_AT_ONCE},
        {"max_length": 12, "min_length": 2, **ENDS_AT_ONCE},
        {"max_length": 12, "min_new_tokens": 5, "min_length": 9, **ENDS_AT_ONCE},
    ],
    ids=str,
)
def test_an_answer_is_as_long_as_generates(files, original, tmp_path):
    """Its max_length counts new tokens alone, and its min_length what an answer begins with; it forces no first one."""
    said = {"language": "german", "task": "transcribe", "suppress_tokens": MOMENTS}
    if files.get("return_timestamps"):
        del said["suppress_tokens"]
    directory = changed(original, tmp_path, **said, **files)
    checkpoint = convert(directory, ExportOptions(), filled=False).checkpoint
    model = transformers.WhisperForConditionalGeneration.from_pretrained(directory)
    features = torch.randn(1, MELS, 2 * POSITIONS, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        (written,) = model.generate(features, return_dict_in_generate=True)["sequences"].tolist()
    answer = written[len(our_beginning(checkpoint.audio, "")) :]
    ends = "sequence_bias" in files
    expected = checkpoint.min_new_tokens + 1 if ends else checkpoint.max_new_tokens
    assert len(answer) == expected
    assert (answer[-1] == END) == ends
    assert [] == list(checkpoint.text.prefix_ids)
