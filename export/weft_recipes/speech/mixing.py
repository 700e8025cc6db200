"""Windows to train on: one clip or several, somewhere in a window, in another room each time, with noise."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from weft_export.checkpoints.sound import levels, mel_powers
from weft_proto.v1 import bundle_pb2
from weft_recipes.speech.clips import POSITION_S, SOUND, STRIDE, Clip
from weft_recipes.speech.voices import Mark

# Places of silence between two clips, at least and at most.
_GAP = (5, 12)
# The most that a room changes the loudness of the highest against the lowest, in decibels.
_TILT = 6.0
# Noise is so many decibels below what is said.
_CLEAREST, _NOISIEST = 40.0, 8.0


@dataclass(frozen=True, slots=True)
class Placed:
    """A clip, and the place of a window's memory at which it begins."""

    clip: Clip
    first: int

    @property
    def start_s(self) -> float:
        """When it begins."""
        return self.first * POSITION_S

    @property
    def end_s(self) -> float:
        """When it ends."""
        return (self.first + self.clip.positions) * POSITION_S


def place(clips: list[Clip], chance: random.Random) -> list[Placed]:
    """Place clips one behind the other, as many as a window has room for, with silence around them."""
    kept, used = [clips[0]], clips[0].positions
    for clip in clips[1:]:
        if used + clip.positions + _GAP[1] * (len(kept) + 1) <= SOUND.num_positions:
            kept.append(clip)
            used += clip.positions
    gaps = [chance.randint(*_GAP) for _ in kept[1:]]
    first = chance.randint(0, SOUND.num_positions - used - sum(gaps))
    placed = []
    for clip, gap in zip(kept, [*gaps, 0], strict=True):
        placed.append(Placed(clip, first))
        first += clip.positions + gap
    return placed


def heard(windows: list[list[Placed]], noises: Tensor, chance: random.Random) -> Tensor:
    """Return input_features [windows, num_mels, num_frames]: each in a room of its own, with noise."""
    return levels(torch.stack([_energies(window, noises, chance) for window in windows]))


def said_at(windows: list[list[Placed]], marks_of: Callable[[Clip], list[Mark]], ids: dict[str, int]) -> Tensor:
    """Return which mark is said at each place of a memory, int64 [windows, num_positions], 0 for none."""
    said = torch.zeros(len(windows), SOUND.num_positions, dtype=torch.long)
    for row, window in zip(said, windows, strict=True):
        for placed in window:
            here = row[placed.first : placed.first + placed.clip.positions]
            for place, name in placed.clip.spans(marks_of(placed.clip)):
                here[place] = ids[name]
    return said


def _room(chance: random.Random) -> Tensor:
    """What a room does to each mel, as factors of power [num_mels, 1]: a slope and a slow wave."""
    place = torch.linspace(-1, 1, SOUND.num_mels)
    wave = torch.cos(place * chance.uniform(0.5, 2) * math.pi + chance.uniform(0, 2 * math.pi))
    decibels = chance.uniform(-_TILT, _TILT) * place + chance.uniform(0, 3) * wave
    factors: Tensor = 10 ** (decibels[:, None] / 10)
    return factors


def _energies(window: list[Placed], noises: Tensor, chance: random.Random) -> Tensor:
    said = torch.zeros(SOUND.num_mels, SOUND.num_frames)
    for placed in window:
        start = placed.first * STRIDE
        said[:, start : start + placed.clip.energies.shape[1]] = torch.from_numpy(placed.clip.energies)
    loudness = said.sum() / sum(placed.clip.energies.shape[1] for placed in window)
    noise = noises[chance.randrange(len(noises))]
    below = chance.uniform(_NOISIEST, _CLEAREST)
    around = noise * _room(chance) * (loudness / noise.sum(dim=0).mean() * 10 ** (-below / 10))
    together: Tensor = (said * _room(chance) + around) * 10 ** chance.uniform(-2, 0.5)
    return together


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
