"""Each key of a generation_config.json, set to other values: what changes an answer is followed, or told."""

import copy
import json

import pytest
import transformers
from asked_by_file import Chats, Pictures, Server, Sounds, Texts
from config_changes import ABSENT, others
from test_sentence_files import attempted
from test_settings import ended

from weft_export.converters.generation import read_generation
from weft_export.converters.settings import GENERATION_KEYS
from weft_export.errors import CheckpointError

NEW_TOKENS = 10
# Values with an effect that no rule draws.
MORE = {
    "bad_words_ids": [[[5]], [[7, 9]]],
    "begin_suppress_tokens": [[11, 12]],
    "constraints": [[1]],
    "exponential_decay_length_penalty": [[2, 1.9]],
    "force_words_ids": [[[5]]],
    "num_beams": [3],
    "sequence_bias": [[[[13], 9.0]]],
    "stop_strings": [["a"]],
    "suppress_tokens": [[8, 9]],
    "eos_token_id": [[1, 40, 41, 42, 43]],
}


# Drafts that the model itself judges: of draws from one seed others come out, with the same probabilities.
DRAFTS = {"assistant_early_exit", "prompt_lookup_num_tokens"}


def their_answers(path, given, asked):
    """What generate() writes by a file of some settings; None where it refuses them."""
    path.write_text(json.dumps(given))
    return attempted(lambda: asked.written(transformers.GenerationConfig.from_pretrained(path.parent)))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["llama", "bart", "t5"])
@pytest.mark.parametrize("strategy", [{}, {"num_beams": 2}, {"do_sample": True}], ids=str)
def test_what_changes_an_answer_is_followed_or_told(name, strategy, tmp_path):
    """What we read of the file differs then; tests/export/converters/test_settings.py holds answers to it."""
    asked = Texts(name, tmp_path)
    path = tmp_path / "generation_config.json"
    base = json.loads(path.read_text()) | {"max_new_tokens": NEW_TOKENS, **strategy}
    config = json.loads((tmp_path / "config.json").read_text())

    def read(given):
        path.write_text(json.dumps(given))
        return read_generation(tmp_path, config, {}, reads_source=asked.model.config.is_encoder_decoder, has_bias=True)

    ours, theirs = read(base), their_answers(path, base, asked)
    assert theirs is not None
    faults = []
    drafts = DRAFTS if "do_sample" in strategy else set()
    for key in sorted({*transformers.GenerationConfig().to_dict(), *GENERATION_KEYS} - drafts):
        for value in (*others(key, base.get(key)), *MORE.get(key, ())):
            given = copy.deepcopy({other: each for other, each in base.items() if other != key})
            given |= {} if value is ABSENT else {key: value}
            answers = their_answers(path, given, asked)
            if answers in (None, theirs):
                continue
            try:
                is_followed = read(given) != ours
            except CheckpointError as error:
                is_followed = key in str(error)
            if not is_followed:
                faults.append((key, value))
    assert [] == faults


# Keys that say which tokens are written: of rules, of bans, of lengths and of ends.
SERVED = ("begin_suppress_tokens", "exponential_decay_length_penalty", "max_new_tokens", "min_new_tokens",
          "no_repeat_ngram_size", "repetition_penalty", "sequence_bias", "suppress_tokens")  # fmt: skip
# Keys that say how a search goes.
SEARCHED = ("early_stopping", "length_penalty", "no_repeat_ngram_size", "num_beams", "num_return_sequences",
            "repetition_penalty")  # fmt: skip
# Of kinds that read no text, each key. What is drawn has a file of tests of its own.
EACH = tuple(
    sorted({*transformers.GenerationConfig().to_dict(), *GENERATION_KEYS} - {"_from_model_config", "do_sample"})
)
SPOKEN = {"language": "german", "task": "transcribe", "_from_model_config": False}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "subject", "strategy", "keys"),
    [
        ("bart", Texts, {}, SERVED),
        ("t5", Texts, {}, SERVED),
        ("marian", Texts, {}, SERVED),
        ("llama", Texts, {}, SERVED),
        ("bart", Texts, {"num_beams": 3}, SEARCHED),
        ("llama", Texts, {"num_beams": 3}, SEARCHED),
        ("vit-gpt2", Pictures, {}, EACH),
        ("vit-gpt2", Pictures, {"num_beams": 3}, SEARCHED),
        ("trocr", Pictures, {}, SERVED),
        ("blip", Pictures, {}, EACH),
        ("llava-llama", Chats, {}, SERVED),
        ("llava-llama", Chats, {"num_beams": 3}, SEARCHED),
        ("whisper", Sounds, SPOKEN, EACH),
        ("whisper", Sounds, SPOKEN | {"return_timestamps": True}, SERVED),
        ("whisper", Sounds, SPOKEN | {"num_beams": 3}, SEARCHED),
    ],
    ids=lambda each: str(each) if isinstance(each, str | dict) else "",
)
def test_an_answer_is_what_generate_writes_by_the_same_file(name, subject, strategy, keys, tmp_path):
    """Whatever value a key has: tokens are served as generate() writes them, or a note tells, or it is refused."""
    directory = tmp_path / "model"
    asked = subject(name, directory)
    path = directory / "generation_config.json"
    base = json.loads(path.read_text()) | {"max_new_tokens": NEW_TOKENS, "forced_eos_token_id": None, **strategy}
    path.write_text(json.dumps(base))
    server = Server(directory, tmp_path, asked.requests())
    told = server.read()[1]
    faults, compared = [], 0
    for key in keys:
        for value in (*others(key, base.get(key)), *MORE.get(key, ())):
            given = {other: each for other, each in base.items() if other != key}
            given |= {} if value is ABSENT else {key: value}
            theirs = their_answers(path, given, asked)
            try:
                checkpoint, notes = server.read()
            except CheckpointError:
                continue
            if theirs is None or notes - told:
                continue
            compared += 1
            ends = asked.ends(given)
            begun = asked.beginnings(checkpoint)
            expected = [
                [[*each[: len(begin)], *ended(each[len(begin) :], ends)] for each in outputs]
                for outputs, begin in zip(theirs, begun, strict=True)
            ]
            answers = zip(server.answers(checkpoint), begun, strict=True)
            found = [[[*begin, *each] for each in outputs] for outputs, begin in answers]
            if expected != found:
                faults.append((key, value, expected, found))
    assert [] == faults
    assert compared >= len(keys)
