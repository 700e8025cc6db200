"""The recipe of the model that hears: what is held out, how errors are counted, and what its weights hear."""

import base64
import json
import re
import wave
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_recipes.commands import Recording, answers
from weft_recipes.shared.figures import word_error_rate
from weft_recipes.speech.utterances import Utterance, sample, say_number, words
from weft_recipes.speech.voices import HELD_OUT, TRAINED

COMMANDS = Path(__file__).parents[3] / "export" / "checkpoints" / "commands"


def heard(files):
    """What the committed weights hear in WAV files."""
    recordings = []
    for data in files:
        with wave.open(BytesIO(data)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32768)
        recordings.append(Recording(Utterance("", is_held_out=True), torch.from_numpy(samples)))
    return answers(COMMANDS, recordings)


def test_what_is_held_out_is_never_trained_on():
    """No phrase and no voice is on both sides, and both sides have the same words."""
    trained, held_out = ({phrase.text for phrase in sample(3000, 1, held_out=side)} for side in (False, True))

    assert not trained & held_out
    assert not set(TRAINED) & set(HELD_OUT)
    assert {word for text in held_out for word in text.split()} <= words()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "zero"),
        (14, "fourteen"),
        (40, "forty"),
        (42, "forty two"),
        (307, "three hundred and seven"),
        (900, "nine hundred"),
    ],
)
def test_numbers_are_said_as_the_british_do(number, said):
    """With `and` behind the hundreds."""
    assert said == say_number(number)


@pytest.mark.parametrize(
    ("answer", "errors"),
    [("turn on the light", 0), ("turn off the light", 1), ("turn the light", 1), ("turn on all the light", 1), ("", 4)],
)
def test_a_changed_a_missing_and_a_new_word_are_one_error_each(answer, errors):
    """Of four words."""
    assert errors / 4 == word_error_rate([answer], ["turn on the light"])


def test_the_card_states_the_bar():
    """At most one word in ten is wrong, of phrases and voices held out, where there is little noise."""
    (rate,) = re.findall(
        r"^\| word error rate, noise 40 dB below \| ([\d.]+) \|$", (COMMANDS / "README.md").read_text(), re.MULTILINE
    )
    assert float(rate) <= 0.1


def test_the_committed_weights_hear_the_committed_recordings():
    """The examples rightly, and what int8 is measured on nearly so."""
    files = sorted((COMMANDS / "examples").glob("*.wav"))
    assert 3 == len(files)
    assert [file.stem.replace("-", " ") for file in files] == heard([file.read_bytes() for file in files])

    lines = [json.loads(line) for line in (COMMANDS / HELD_OUT_FILE).read_text().splitlines()]
    said = heard([base64.b64decode(line["input"]) for line in lines])
    assert word_error_rate(said, [line["reference"] for line in lines]) <= 0.2
