"""Phrases as they are said: synthesised in two processes, as samples for measuring and as mel energies for training."""

import multiprocessing
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft_export.checkpoints.sound import mel_powers
from weft_export.console import OnProgress
from weft_proto.v1 import bundle_pb2
from weft_recipes.speech.utterances import Utterance
from weft_recipes.speech.voices import Mark, Spoken, Synthesiser, draw_voice

WINDOW_S = 3.2
SOUND = bundle_pb2.AudioSpec(
    # As a telephone has it: half the bytes of 16,000, and what the words differ in is below 4,000 Hz.
    sample_rate=8_000,
    num_mels=40,
    fft_size=256,
    hop_size=128,
    num_frames=200,
    num_positions=100,
)
STRIDE = SOUND.num_frames // SOUND.num_positions
POSITION_S = WINDOW_S / SOUND.num_positions
_CHUNK = 50
# What is quieter than this share of the loudest sample, before the first word and behind the last, is left out.
_QUIET = 0.02


@dataclass(frozen=True, slots=True)
class Clip:
    """What is said once, in a window at most: its words and phonemes, and when each begins. "" is a pause.

    energies is float32 [num_mels, frames], before any logarithm, with the frames of
    `positions` places of a memory.
    """

    phrase: Utterance
    words: list[Mark]
    phonemes: list[Mark]
    energies: NDArray[np.float32]

    @property
    def positions(self) -> int:
        """How many places of a memory it has."""
        return int(self.energies.shape[1]) // STRIDE

    def spans(self, marks: list[Mark]) -> Iterator[tuple[slice, str]]:
        """Yield the places of each mark."""
        firsts = [round(start / POSITION_S) for start, _ in marks]
        for (_, name), first, end in zip(marks, firsts, [*firsts[1:], self.positions], strict=True):
            yield slice(first, min(end, self.positions)), name


Said = tuple[Clip, NDArray[np.float32]]
"""A clip, and its samples [num_samples] at SOUND's rate."""


def say(phrases: list[Utterance], seed: int, *, held_out: bool, on_progress: OnProgress) -> Iterator[Said]:
    """Have phrases said by drawn voices, those of training or those held out.

    What is longer than a window is left out.
    """
    chunks = [phrases[first : first + _CHUNK] for first in range(0, len(phrases), _CHUNK)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        jobs = [pool.submit(_say, chunk, f"{seed}.{index}", held_out) for index, chunk in enumerate(chunks)]
        for index, job in enumerate(jobs):
            yield from job.result()
            on_progress(index + 1, len(jobs), "speaking")


def _say(phrases: list[Utterance], seed: str, held_out: bool) -> list[Said]:  # noqa: FBT001 - as a job's argument
    chance = random.Random(seed)  # noqa: S311 - data, not secrets
    spoken = (_synthesiser().speak(each.text, draw_voice(chance, held_out=held_out)) for each in phrases)
    said = (_clip(phrase, sound) for phrase, sound in zip(phrases, spoken, strict=True))
    return [each for each in said if each is not None]


@cache
def _synthesiser() -> Synthesiser:
    return Synthesiser()


def _clip(phrase: Utterance, spoken: Spoken) -> Said | None:
    """Bring it to SOUND's rate, without the silence around it."""
    loud = (spoken.samples.abs() > _QUIET * spoken.samples.abs().max()).nonzero()
    first, last = int(loud[0]), int(loud[-1]) + 1
    samples = _resampled(spoken.samples[first:last], spoken.rate)
    if len(samples) > WINDOW_S * SOUND.sample_rate:
        return None
    positions = -(-len(samples) // (SOUND.hop_size * STRIDE))
    # A window of its own: of a whole one, most would be silence.
    window = bundle_pb2.AudioSpec()
    window.CopyFrom(SOUND)
    window.num_frames = positions * STRIDE
    energies = mel_powers(samples, window).float()
    words, phonemes = (
        [(max(0.0, start - first / spoken.rate), name) for start, name in marks]
        for marks in (spoken.words, spoken.phonemes)
    )
    # As arrays: a tensor that another process gets holds a file open.
    return Clip(phrase, words, phonemes, energies.numpy()), samples.numpy()


def _resampled(samples: Tensor, rate: int) -> Tensor:
    """Bring samples to SOUND's rate: frequencies above half of it are left out of the spectrum."""
    count = round(len(samples) * SOUND.sample_rate / rate)
    spectrum: Tensor = torch.fft.rfft(samples)[: count // 2 + 1]
    resampled: Tensor = torch.fft.irfft(spectrum, count) * (count / len(samples))
    return resampled
