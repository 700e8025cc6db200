"""A recording of a checkpoint as a model hears it. It is a WAV of one channel, 16 bits, at the model's own rate."""

import io
import wave
from functools import cache

import numpy as np
import torch
from torch import Tensor

from weft_export.errors import CheckpointError
from weft_proto.ctc import LEAST_DEVIATION, LEAST_ENERGY, VARIANCE_FLOOR, least_samples, num_frames_of, num_labels_of
from weft_proto.sound import MAX_AUDIO_BYTES, mel_triangles, window_samples
from weft_proto.v1 import bundle_pb2

_LOUDEST = 32768


def read_recording(what: str, data: bytes, spec: bundle_pb2.AudioSpec) -> Tensor:
    """Return the log-mel energies [num_mels, num_frames] of a recording of one window, or what a model reads else.

    Raises:
        CheckpointError: it begins with `what`, and says that it is too large or too long, or no such WAV.
    """
    if len(data) > MAX_AUDIO_BYTES:
        raise CheckpointError(f"{what} has {len(data)} bytes; a server takes recordings of {MAX_AUDIO_BYTES}")
    try:
        with wave.open(io.BytesIO(data)) as file:
            form = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            pcm = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise CheckpointError(f"{what} is not a WAV: {error}") from error
    if form != (1, 2, spec.sample_rate):
        raise CheckpointError(f"{what} must have one channel, 16 bits and {spec.sample_rate} samples a second")
    samples = torch.frombuffer(bytearray(pcm), dtype=torch.int16).float() / _LOUDEST if pcm else torch.zeros(0)
    if not 0 < len(samples) <= window_samples(spec):
        raise CheckpointError(f"{what} has {len(samples)} samples; a window has {window_samples(spec)}")
    if not spec.HasField("ctc") and not spec.min_samples:
        return log_mel(samples, spec)
    if num_labels_of(spec, len(samples)) == 0:
        raise CheckpointError(f"{what} has {len(samples)} samples; the model needs {least_samples(spec)}")
    return mel_frames(samples, spec) if spec.ctc.HasField("mel") else waveform(samples, spec)


def mel_frames(samples: Tensor, spec: bundle_pb2.AudioSpec) -> Tensor:
    """Return energies float32 [frames, num_mels] of samples of one window, as MelSpec says."""
    mel = spec.ctc.mel
    sound = samples.double()
    sound = torch.cat((sound[:1], sound[1:] - mel.preemphasis * sound[:-1]))
    hann = torch.hann_window(mel.window_size, periodic=False, dtype=torch.float64)
    sizes = (mel.fft_size, mel.hop_size, mel.window_size)
    spectrum = torch.stft(sound, *sizes, window=hann, return_complex=True, pad_mode="constant")
    powers = spectrum[:, : num_frames_of(mel, len(samples))].abs() ** 2
    logs = (_triangles(spec.sample_rate, mel.num_mels, mel.fft_size) @ powers + LEAST_ENERGY).log().t()
    logs = logs - logs.mean(dim=0)
    deviation = (logs.square().sum(dim=0) / max(1, len(logs) - 1)).sqrt()
    return (logs / (deviation + LEAST_DEVIATION)).float()


def log_mel(samples: Tensor, spec: bundle_pb2.AudioSpec) -> Tensor:
    """Return the log-mel energies float32 [num_mels, num_frames] of samples [at most a window], as AudioSpec says."""
    return levels(mel_powers(samples, spec))


def waveform(samples: Tensor, spec: bundle_pb2.AudioSpec) -> Tensor:
    """Return samples float32 [num_samples] of one window as a model reads them."""
    if not spec.ctc.normalized:
        return samples
    heard = samples.numpy()
    return torch.from_numpy((heard - heard.mean()) / np.sqrt(heard.var() + VARIANCE_FLOOR))


def mel_powers(samples: Tensor, spec: bundle_pb2.AudioSpec) -> Tensor:
    """Return the mel energies float64 [num_mels, num_frames] of samples [at most a window], before any logarithm."""
    filled = torch.zeros(window_samples(spec), dtype=torch.float64)
    filled[: len(samples)] = samples
    hann = torch.hann_window(spec.fft_size, dtype=torch.float64)
    spectrum = torch.stft(filled, spec.fft_size, spec.hop_size, window=hann, return_complex=True, pad_mode="reflect")
    powers = spectrum[:, : spec.num_frames].abs() ** 2
    return _triangles(spec.sample_rate, spec.num_mels, spec.fft_size) @ powers


def levels(energies: Tensor) -> Tensor:
    """Return what a model hears of mel energies [..., num_mels, num_frames], float32 of the same shape."""
    logs = energies.clamp(min=1e-10).log10()
    return ((logs.maximum(logs.amax(dim=(-2, -1), keepdim=True) - 8) + 4) / 4).float()


def wav_of(samples: Tensor, sample_rate: int) -> bytes:
    """Return samples [num_samples], most of them in [-1, 1], as a WAV that `read_recording` reads."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes((samples * _LOUDEST).round().clamp(-_LOUDEST, _LOUDEST - 1).to(torch.int16).numpy().tobytes())
    return out.getvalue()


@cache
def _triangles(sample_rate: int, num_mels: int, fft_size: int) -> Tensor:
    """Return mel_triangles, which take longer than all else."""
    spec = bundle_pb2.AudioSpec(sample_rate=sample_rate, num_mels=num_mels, fft_size=fft_size)
    return torch.tensor(mel_triangles(spec), dtype=torch.float64)
