"""Whatever the bytes of a recording are, it becomes energies or is refused as `audio.data`."""

import io
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import event, given
from hypothesis import strategies as st

from bounded import Bounded
from mutations import budget, mutated_bytes
from weft_proto.v1 import bundle_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.audio_file import load_samples
from weft_server.preprocessing.log_mel import LogMel, spans_of
from weft_server.preprocessing.wanted import Wanted

SPEC = bundle_pb2.AudioSpec(sample_rate=8000, num_mels=8, fft_size=64, hop_size=40, num_frames=40, num_positions=20)
SHAPE = (8, 40)
LOG_MEL = LogMel(SPEC)
MOST_BYTES, MOST_S = 1 << 20, 10


def saved(kind, subtype, rate=8000, channels=1):
    """A recording as a file."""
    noise = np.random.default_rng(0).standard_normal((900, channels)) * 0.1
    file = io.BytesIO()
    soundfile.write(file, noise, rate, format=kind, subtype=subtype)
    return file.getvalue()


FILES = [
    *(saved("WAV", subtype) for subtype in ("PCM_U8", "PCM_16", "PCM_24", "FLOAT", "DOUBLE", "ULAW", "IMA_ADPCM")),
    saved("WAV", "PCM_16", 44100, 2),
    saved("WAVEX", "PCM_16", channels=3),
    saved("FLAC", "PCM_16"),
    saved("FLAC", "PCM_24", 48000, 2),
]


def or_odd(right, *odd):
    """What is right as often as what is not."""
    return st.one_of(st.just(right), st.sampled_from(odd))


@st.composite
def wavs(draw):
    """A WAV whose header may say anything of its data."""
    kind = draw(or_odd(1, 0, 2, 3, 6, 7, 0x11, 0x31, 0x55, 0xFFFE, 0xFFFF))
    channels = draw(or_odd(1, 0, 2, 8, 9, 0xFFFF))
    rate = draw(or_odd(8000, 0, 1, 3999, 44100, 192_000, 1 << 31, 0xFFFFFFFF))
    bits = draw(or_odd(16, 0, 1, 7, 8, 12, 24, 32, 64, 0xFFFF))
    align = draw(or_odd(channels * bits // 8 & 0xFFFF, 0, 1, 3, 0xFFFF))
    more = draw(st.sampled_from([b"", bytes(2), bytes(22), b"\x16" + bytes(40)]))
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * align & 0xFFFFFFFF, align, bits) + more
    data = draw(st.binary(max_size=400)) * draw(st.sampled_from([1, 1, 100]))
    stated = draw(or_odd(len(data), 0, 1, len(data) + 1, 0x7FFFFFFF, 0xFFFFFFFF))
    inside = b"WAVEfmt " + struct.pack("<I", draw(or_odd(len(form), 0, 15, 0xFFFFFFFF))) + form
    inside += b"data" + struct.pack("<I", stated) + data
    return b"RIFF" + struct.pack("<I", draw(or_odd(len(inside), 0, 0xFFFFFFFF))) + inside


@st.composite
def flacs(draw):
    """A FLAC whose header may say anything of what follows."""
    data = bytearray(draw(st.sampled_from([saved("FLAC", "PCM_16"), saved("FLAC", "PCM_24", channels=2)])))
    fields = struct.unpack_from(">Q", data, 18)[0]
    rate = draw(or_odd(fields >> 44, 0, 1, 3999, 192_000, 655_350, (1 << 20) - 1))
    channels_and_bits = draw(or_odd(fields >> 36 & 0xFF, *range(0, 256, 5)))
    samples = draw(or_odd(fields & (1 << 36) - 1, 0, 1, 899, 901, 80_001, (1 << 36) - 1))
    struct.pack_into(">Q", data, 18, rate << 44 | channels_and_bits << 36 | samples)
    return bytes(data)


def read(data):
    """Whether all windows have their energies, or the field of the refusal."""
    try:
        samples = load_samples(data, SPEC.sample_rate, MOST_BYTES, MOST_S, Wanted())
    except InvalidRequest as error:
        return error.field
    features = [LOG_MEL.features(samples[span.start : span.end]) for span in spans_of(samples, SPEC)]
    assert all(np.isfinite(each).all() for each in features)
    return {each.shape for each in features} == {SHAPE}


@pytest.fixture(scope="module")
def reader():
    """`read` in a process of its own: libsndfile could end it. Gigabytes that a header promises are not there."""
    with Bounded(__file__, "read", megabytes=256) as call:
        yield call


def test_recordings_are_read(reader):
    """What is mutated below is worth it."""
    for data in FILES:
        assert reader(data) is True


@budget(150)
@given(data=st.one_of(mutated_bytes(FILES), st.binary(max_size=200)))
def test_any_bytes_become_energies_or_are_refused(reader, data):
    """Files of each kind that is taken, changed, and bytes that are none."""
    assert reader(data) in (True, "audio.data")


@budget(200)
@given(data=st.one_of(wavs(), flacs()))
def test_any_header_is_kept_to_or_refused(reader, data):
    """Numbers of a header, each of its own: its data has as much as it says, or less, or more."""
    event(str(said := reader(data)))
    assert said in (True, "audio.data")
