"""Recordings: what is taken, what is refused and how, and where a long one is cut."""

import io
import struct
import tracemalloc
import wave
from contextlib import contextmanager

import numpy as np
import pytest
import soundfile

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import DeadlineExpired, InvalidRequest
from weft_server.logits_processors.history import History
from weft_server.preprocessing import audio_file
from weft_server.preprocessing.audio_file import load_samples
from weft_server.preprocessing.inputs import InputReader
from weft_server.preprocessing.log_mel import spans_of
from weft_server.preprocessing.wanted import Wanted
from weft_server.requests.transcription import timestamp_ids, timestamps_of

RATE, MOST_BYTES, MOST_S = 16000, 1 << 20, 20
SPEC = bundle_pb2.AudioSpec(sample_rate=100, num_mels=8, fft_size=32, hop_size=10, num_frames=100, num_positions=50)


def tone(rate=RATE, seconds=1.0, channels=1, pitch=440):
    """A tone, the same in all channels, float32 [samples, channels]."""
    times = np.arange(int(rate * seconds)) / rate
    return np.repeat(0.5 * np.sin(2 * np.pi * pitch * times)[:, None], channels, axis=1).astype(np.float32)


def file_of(samples, rate=RATE, kind="WAV", subtype="PCM_16"):
    """Samples as a file."""
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


def with_header(wav, place, form, value):
    """A WAV whose header has another value at a place."""
    data = bytearray(wav)
    struct.pack_into(form, data, place, value)
    return bytes(data)


def load(data, **limits):
    """The samples of a file at 16 kHz."""
    limits = {"max_bytes": MOST_BYTES, "max_s": MOST_S} | limits
    return load_samples(data, RATE, limits["max_bytes"], limits["max_s"], Wanted())


def refusal(data, **limits):
    """Field and reason of the refusal of a file."""
    with pytest.raises(InvalidRequest) as refused:
        load(data, **limits)
    assert "audio.data" == refused.value.field
    return refused.value.reason


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        ("WAV", "PCM_U8"),
        ("WAV", "PCM_16"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("WAVEX", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("FLAC", "PCM_24"),
    ],
)
@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (44100, 2), (8000, 6)])
def test_any_wav_or_flac_is_the_same_sound(kind, subtype, rate, channels):
    """Whatever its depth, rate and channels: one channel at the model's rate, near the tone that was written."""
    samples = load(file_of(tone(rate, channels=channels), rate, kind, subtype))
    assert np.float32 == samples.dtype
    assert abs(len(samples) - RATE) <= 1
    middle = slice(1000, 15000)
    np.testing.assert_allclose(samples[middle], tone()[middle, 0], atol=0.03)


def test_rates_change_no_sound_in_blocks():
    """A recording that is decoded second by second has no seams."""
    samples = load(file_of(tone(44100, seconds=3.5), 44100))
    assert abs(len(samples) - 3.5 * RATE) <= 1
    np.testing.assert_allclose(samples[500:-500], tone(seconds=3.5)[500 : len(samples) - 500, 0], atol=0.01)


@contextmanager
def tracked():
    """Yield what tells the most bytes that were held at once."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BAD = {
    "nothing": (b"", "EMPTY_INPUT"),
    "noise": (b"\x12" * 1000, "BAD_AUDIO"),
    "a text": (b"Turn on the light.\n" * 100, "BAD_AUDIO"),
    "an archive": (b"PK\x03\x04" + bytes(100), "BAD_AUDIO"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), "BAD_AUDIO"),
    "an AVI": (b"RIFF\x10\0\0\0AVI " + bytes(100), "BAD_AUDIO"),
    "a header alone": (b"RIFF\x10\0\0\0WAVE", "BAD_AUDIO"),
    "no samples": (file_of(tone(seconds=0)), "EMPTY_INPUT"),
    "half a FLAC": (file_of(tone(seconds=3), kind="FLAC")[:20000], "BAD_AUDIO"),
    "a FLAC of zeros": (b"fLaC" + bytes(400), "BAD_AUDIO"),
    "nine channels": (file_of(tone(seconds=0.1, channels=9)), "BAD_AUDIO"),
    "a rate of 2 kHz": (file_of(tone(2000), 2000), "BAD_AUDIO"),
    "a rate of 384 kHz": (file_of(tone(384_000, seconds=0.1), 384_000), "BAD_AUDIO"),
    "a rate of 0": (with_header(file_of(tone()), 24, "<I", 0), "BAD_AUDIO"),
    "a rate of billions": (with_header(file_of(tone()), 24, "<I", 0xFFFFFFFF), "BAD_AUDIO"),
    "no channels": (with_header(file_of(tone()), 22, "<H", 0), "BAD_AUDIO"),
    "65,535 channels": (with_header(file_of(tone()), 22, "<H", 0xFFFF), "BAD_AUDIO"),
    "samples of no bits": (with_header(file_of(tone()), 34, "<H", 0), "BAD_AUDIO"),
    "MP3 in a WAV": (with_header(file_of(tone()), 20, "<H", 0x55), "BAD_AUDIO"),
    "data of no bytes": (with_header(file_of(tone()), 40, "<I", 0), "EMPTY_INPUT"),
    "an infinity": (file_of(np.full_like(tone(), np.inf), subtype="FLOAT"), "BAD_AUDIO"),
    "not a number": (file_of(tone() * np.float32(np.nan), subtype="FLOAT"), "BAD_AUDIO"),
    "what overflows": (file_of(np.full_like(tone(44100, 1.0, 2), 3e38), 44100, subtype="FLOAT"), "BAD_AUDIO"),
    "too long": (file_of(tone(seconds=21)), "AUDIO_TOO_LONG"),
}


@pytest.mark.parametrize(("data", "reason"), BAD.values(), ids=BAD)
def test_what_is_no_recording_is_refused(data, reason):
    """With a reason, and never as a bug."""
    assert reason == refusal(data)


def test_a_file_that_is_too_large_is_not_looked_at():
    """The limit on bytes stands before all else."""
    assert "AUDIO_TOO_LARGE" == refusal(b"\0" * 101, max_bytes=100)


def test_a_header_that_promises_hours_is_refused_before_a_sample_is_read():
    """A FLAC of an hour of silence has few bytes. Its header says how long it is."""
    silence = file_of(np.zeros((3600 * 8000, 1), np.float32), 8000, "FLAC")
    assert len(silence) < MOST_BYTES
    assert "AUDIO_TOO_LONG" == refusal(silence)


def of_unknown_length(flac):
    """A FLAC whose header has 0 in the 36 bits for the number of samples, as programs write that do not know it."""
    data = bytearray(flac)
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    return bytes(data)


def test_a_flac_of_unknown_length_has_what_is_there():
    """The same samples as if its header said how many."""
    flac = file_of(tone(), kind="FLAC")
    np.testing.assert_array_equal(load(flac), load(of_unknown_length(flac)))


def test_a_flac_of_unknown_length_is_read_no_further_than_the_limit():
    """Minutes of silence are few bytes, and are not taken into memory."""
    flac = of_unknown_length(file_of(np.zeros((300 * 8000, 1), np.float32), 8000, "FLAC"))
    with tracked() as most:
        assert "AUDIO_TOO_LONG" == refusal(flac)
    # Twenty seconds are let in: 320,000 samples of four bytes at the model's rate, and their parts.
    assert most() < 8 << 20


def test_a_wav_of_unknown_length_has_what_is_there():
    """A program that writes into a pipe does not know the length, and says the largest."""
    data = bytearray(file_of(tone()))
    struct.pack_into("<I", data, 4, 0xFFFFFFFF)
    struct.pack_into("<I", data, data.index(b"data") + 4, 0xFFFFFFFF)
    assert RATE == len(load(bytes(data)))


def test_a_header_that_promises_gigabytes_gets_no_memory():
    """A WAV has the samples that are there, and no more than a second of them is decoded at once."""
    promised = with_header(file_of(tone()), 40, "<I", 0x7FFFFFFF)
    with tracked() as most:
        assert RATE == len(load(promised))
    assert most() < 2 << 20


def test_one_sample_is_a_recording():
    """Bit for bit, however short it is."""
    np.testing.assert_array_equal(load(file_of(np.array([0.5], np.float32))), [0.5])


def test_integers_as_floats_are_taken():
    """A program that does not divide them by full scale writes large numbers: the sound is the same, and louder."""
    np.testing.assert_array_equal(load(file_of(32768 * tone(), subtype="FLOAT")), 32768 * tone()[:, 0])


def test_a_wav_that_python_wrote_is_read():
    """Bit for bit."""
    out, pcm = io.BytesIO(), np.arange(-800, 800, dtype=np.int16)
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(pcm.tobytes())
    np.testing.assert_array_equal(load(out.getvalue()), pcm / np.float32(32768))


def test_nobody_waits_for_what_is_given_up():
    """Between seconds it is asked whether somebody still wants it."""
    wanted = Wanted()
    wanted.give_up()
    with pytest.raises(DeadlineExpired):
        load_samples(file_of(tone(seconds=3)), RATE, MOST_BYTES, MOST_S, wanted)


@pytest.mark.parametrize("num_samples", [1, 999, 1000, 1001, 2500, 10_000])
def test_windows_are_the_recording(num_samples):
    """They follow each other without a gap, and none is longer than the model hears at once: 1,000 samples."""
    samples = np.random.default_rng(num_samples).standard_normal(num_samples).astype(np.float32)
    spans = spans_of(samples, SPEC)
    assert [0, *(span.end for span in spans[:-1])] == [span.start for span in spans]
    assert num_samples == spans[-1].end
    assert all(0 < span.end - span.start <= 1000 for span in spans)
    assert all(span.end - span.start >= 600 for span in spans[:-1])


def test_a_long_recording_is_cut_where_it_is_quiet():
    """In the pause, and not in a word."""
    samples = np.ones(1500, np.float32)
    samples[800:840] = 0
    first, second = spans_of(samples, SPEC)
    assert 800 <= first.end <= 840
    assert (first.end, 1500) == second


def reader():
    """Of a model that hears ten seconds at once: 1,000 samples at 100 Hz."""
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSCRIBE, audio=SPEC)
    limits = {"max_image_bytes": 1, "max_image_pixels": 1, "max_audio_bytes": MOST_BYTES, "max_audio_s": 600}
    return InputReader(manifest, None, **limits)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_what_a_window_does_not_hold_is_refused_by_its_header(monkeypatch, kind):
    """Minutes for a model that hears ten seconds at once: nothing is decoded."""
    seconds = 600 if kind == "FLAC" else 200  # of a megabyte at most
    long = file_of(np.zeros((seconds * 4000, 1), np.float32), 4000, kind, "PCM_16" if kind == "FLAC" else "PCM_U8")
    with monkeypatch.context() as patched:
        patched.setattr(audio_file._Onward, "read", lambda *_: pytest.fail("it was read"))
        with pytest.raises(InvalidRequest, match="takes at most 10 s") as refused:
            reader().read_window(common_pb2.Audio(data=long), "explain", Wanted())
    assert ("explain", "INPUT_TOO_LONG") == (refused.value.field, refused.value.reason)


def test_what_has_no_length_in_its_header_is_refused_when_it_is_over(monkeypatch):
    """After a second more than the model hears at once."""
    read, seconds = audio_file._Onward.read, []
    monkeypatch.setattr(audio_file._Onward, "read", lambda *args, **more: seconds.append(1) or read(*args, **more))
    flac = of_unknown_length(file_of(np.zeros((60 * 4000, 1), np.float32), 4000, "FLAC"))
    with pytest.raises(InvalidRequest, match="takes at most 10 s"):
        reader().read_window(common_pb2.Audio(data=flac), "explain", Wanted())
    assert 11 == len(seconds)


@pytest.mark.parametrize("rate", [4000, 8000, 44100])
def test_what_a_window_just_holds_is_taken(rate):
    """At any rate of the file: ten seconds are taken, and ten seconds and a tenth are not."""
    samples = np.zeros((int(10.1 * rate), 1), np.float32)
    assert reader().read_window(common_pb2.Audio(data=file_of(samples[: 10 * rate], rate)), "audio", Wanted())
    with pytest.raises(InvalidRequest, match="takes at most 10 s"):
        reader().read_window(common_pb2.Audio(data=file_of(samples, rate)), "audio", Wanted())


def moments(**audio):
    """Scores of eight tokens, of which the last three say moments, as an answer begins."""
    spec = bundle_pb2.AudioSpec(hop_size=2, num_frames=4, timestamp_samples=4, first_timestamp_id=5, **audio)
    scores = np.zeros(8, np.float32)
    timestamps_of(spec, [1]).apply(None, scores, History([], np.zeros(0, np.int64), 8))
    return timestamp_ids(spec), [token for token in range(8) if scores[token] == 0]


def test_an_answer_with_moments_begins_with_one():
    """Moments lie from a window's beginning to its end. The first one may have a latest time."""
    assert (range(5, 8), [5, 6, 7]) == moments()
    assert (range(5, 8), [5]) == moments(max_first_timestamp=0)
    assert (range(5, 8), [5, 6]) == moments(max_first_timestamp=1, no_timestamps_id=2)
    assert range(0) == timestamp_ids(bundle_pb2.AudioSpec(hop_size=2, num_frames=4))
