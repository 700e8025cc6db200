"""Noise: white, pink and brown, as samples and as mel energies."""

import torch
from torch import Tensor

from weft_export.checkpoints.sound import mel_powers
from weft_proto.v1 import bundle_pb2

# The power of noise falls with its frequency to the power of these.
_SLOPES = (0.0, 1.0, 2.0)
# Below, it falls no more.
_LOWEST_HZ = 60


def noise(count: int, rate: int, kind: int, generator: torch.Generator) -> Tensor:
    """Return samples [count] of noise of the power 1."""
    spectrum = torch.fft.rfft(torch.randn(count, generator=generator))
    hertz = torch.fft.rfftfreq(count, 1 / rate).clamp(min=_LOWEST_HZ)
    samples: Tensor = torch.fft.irfft(spectrum * hertz ** (-_SLOPES[kind] / 2), count)
    return samples / samples.square().mean().sqrt()


def noisy(samples: Tensor, rate: int, decibels: float, kind: int, generator: torch.Generator) -> Tensor:
    """Return samples with noise so many decibels below them."""
    loudness = samples.square().mean().sqrt()
    return samples + noise(len(samples), rate, kind, generator) * loudness * 10 ** (-decibels / 20)


def bank(spec: bundle_pb2.AudioSpec, count: int, generator: torch.Generator) -> Tensor:
    """Return mel energies float32 [count, num_mels, num_frames] of noises of the power 1, all kinds in turn."""
    samples = spec.hop_size * spec.num_frames
    noises = (noise(samples, spec.sample_rate, index % len(_SLOPES), generator) for index in range(count))
    return torch.stack([mel_powers(each, spec).float() for each in noises])
