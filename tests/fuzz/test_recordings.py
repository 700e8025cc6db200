"""Whatever the bytes of a recording are, it becomes energies or is refused as `audio.data`."""

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from bounded import Bounded
from mutations import budget, mutated_bytes
from weft_proto.v1 import bundle_pb2
from weft_server.content.sound_file import load_samples
from weft_server.content.wanted import Wanted
from weft_server.content.windows import LogMel, spans_of
from weft_server.errors import InvalidRequest

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
    """`read` in a process of its own: libsndfile could end it."""
    with Bounded(__file__, "read") as call:
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
