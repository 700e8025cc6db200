"""Exporter and server hear the same: log-mel energies of the same samples, which are also those of transformers."""

import numpy as np
import pytest
import torch
import transformers

from weft_export.checkpoints.sound import log_mel, read_recording, wav_of
from weft_proto.v1 import bundle_pb2 as pb
from weft_server.preprocessing.audio_file import load_samples
from weft_server.preprocessing.log_mel import LogMel
from weft_server.preprocessing.wanted import Wanted

WHISPER = pb.AudioSpec(sample_rate=16000, num_mels=80, fft_size=400, hop_size=160, num_frames=3000, num_positions=1500)
SMALL = pb.AudioSpec(sample_rate=8000, num_mels=20, fft_size=128, hop_size=100, num_frames=40, num_positions=20)
MOST = 1 << 24


def sound(num_samples):
    """Noise that comes and goes, float32 [num_samples]."""
    random = np.random.default_rng(num_samples)
    return (random.standard_normal(num_samples) * np.sin(np.arange(num_samples) / 3000) ** 2 * 0.3).astype(np.float32)


@pytest.mark.parametrize("num_samples", [1, 199, 16_000, 479_999, 480_000])
def test_energies_are_those_of_transformers(num_samples):
    """Within 1e-4, for a moment as for a full window."""
    samples = sound(num_samples)
    extractor = transformers.WhisperFeatureExtractor()
    expected = extractor(samples, sampling_rate=16000, return_tensors="np").input_features[0]
    np.testing.assert_allclose(LogMel(WHISPER).features(samples), expected, atol=1e-4)


@pytest.mark.parametrize("spec", [WHISPER, SMALL], ids=["whisper", "small"])
@pytest.mark.parametrize("num_samples", [1, 150, 3_999, 4_000])
def test_exporter_and_server_hear_the_same(spec, num_samples):
    """From the samples, and from a file of them."""
    samples = sound(num_samples)
    of_server = LogMel(spec).features(samples)
    np.testing.assert_allclose(log_mel(torch.from_numpy(samples), spec), of_server, atol=1e-5)
    file = wav_of(torch.from_numpy(samples), spec.sample_rate)
    decoded = load_samples(file, spec.sample_rate, MOST, 60, Wanted())
    np.testing.assert_allclose(read_recording("it", file, spec), LogMel(spec).features(decoded), atol=1e-5)
