"""A golden request that a person gives: a text, a question, or the file of a picture, a recording or a text."""

import pytest
import torch
from tiny import CHECKPOINTS
from tiny_parts import picture

from weft_export.checkpoints.golden_requests import with_golden
from weft_export.checkpoints.made_media import NUM_PICTURES, NUM_SOUNDS, made_picture, made_sound
from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.sound import read_recording, wav_of
from weft_export.errors import CheckpointError
from weft_export.verification.golden import GoldenRequest
from weft_proto.v1 import bundle_pb2

FP32 = bundle_pb2.PRECISION_FP32
RATE = CHECKPOINTS["tiny-speech"]().audio.sample_rate
SOUND = wav_of(0.1 * torch.randn(500, generator=torch.Generator().manual_seed(3)), RATE)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("tiny-caption", "a.PNG", picture(30, 40)),
        ("tiny-image", "a.png", picture(30, 40, "L")),
        ("tiny-match", "a.png", picture(30, 40)),
        ("tiny-answer", "a.png", picture(30, 40)),
        ("tiny-embed-image", "a.png", picture(30, 40)),
        ("tiny-speech", "a.wav", SOUND),
    ],
)
def test_a_file_is_asked_in_the_place_of_a_checkpoints_own(name, file, content, tmp_path):
    """Every task that takes a picture or a recording takes a file of one, which then is the bundle's golden file."""
    path = tmp_path / file
    path.write_bytes(content)
    checkpoint = CHECKPOINTS[name]()
    asked = with_golden(checkpoint, str(path))

    golden = asked.golden.image_path or asked.golden.audio_path
    assert (f"golden{path.suffix.lower()}", content) == (golden, asked.files[golden])
    assert len(checkpoint.files) == len(asked.files)
    assert checkpoint.golden.question == asked.golden.question
    mine, its = (GoldenRequest(each, FP32, may_make=False).answer() for each in (asked, checkpoint))
    assert list(mine.labels) == list(its.labels)
    assert mine.SerializeToString() != its.SerializeToString()


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate", "tiny-text", "tiny-tags", "tiny-embed"])
def test_a_text_or_a_file_of_one_is_asked(name, tmp_path):
    """A path that ends in .txt names a file; all else is the text itself, however long."""
    checkpoint, path = CHECKPOINTS[name](), tmp_path / "golden.txt"
    path.write_text("the dog\n")
    assert "the dog" == with_golden(checkpoint, str(path)).golden.text
    for text in ("the dog", "missing.txt", str(tmp_path), "a " * 5000):
        assert text == with_golden(checkpoint, text).golden.text
    assert checkpoint.golden.text not in {"the dog", ""}
    path.write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"golden\.txt is not UTF-8"):
        with_golden(checkpoint, str(path))


def test_a_question_is_asked_of_the_picture_that_is_there():
    """Of a model that answers questions, what is no file is the question."""
    checkpoint = CHECKPOINTS["tiny-answer"]()
    asked = with_golden(checkpoint, "the dog")
    assert ("the dog", checkpoint.golden.image_path) == (asked.golden.question, asked.golden.image_path)


@pytest.mark.parametrize(
    ("name", "file", "content", "complaint"),
    [
        ("tiny-caption", "a.png", b"no picture", r"a\.png is not a PNG"),
        (
            "tiny-speech",
            "a.wav",
            wav_of(torch.zeros(800), 2 * RATE),
            rf"a\.wav must have one channel, 16 bits and {RATE}",
        ),
        ("tiny-speech", "a.wav", wav_of(torch.zeros(10**6), RATE), r"a\.wav has 1000000 samples; a window has"),
        ("tiny-speech", "missing", None, r"cannot read .*missing: No such file"),
    ],
)
def test_a_file_that_no_server_would_take_is_named(name, file, content, complaint, tmp_path):
    """The error names the file that was given, and what it has to be."""
    path = tmp_path / file
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=complaint):
        with_golden(CHECKPOINTS[name](), str(path))


def test_made_files_are_distinct_and_what_a_server_takes():
    """Each picture and each recording that the exporter makes is another one, the same in every export."""
    image, audio = CHECKPOINTS["tiny-caption"]().image, CHECKPOINTS["tiny-speech"]().audio
    pictures = [made_picture(image, number) for number in range(NUM_PICTURES)]
    sounds = [made_sound(audio, number) for number in range(NUM_SOUNDS)]
    assert [made_picture(image, number) for number in range(NUM_PICTURES)] == pictures
    assert [made_sound(audio, number) for number in range(NUM_SOUNDS)] == sounds
    assert NUM_PICTURES == len({read_picture("x", each, image).tobytes() for each in pictures})
    assert NUM_SOUNDS == len({read_recording("x", each, audio).numpy().tobytes() for each in sounds})
