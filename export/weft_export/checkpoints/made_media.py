"""Pictures and recordings that the exporter makes, for golden requests: nobody has taken them."""

import io
import math

import torch
from PIL import Image
from torch import Tensor

from weft_export.checkpoints.sound import wav_of
from weft_proto.ctc import least_samples
from weft_proto.sound import window_samples
from weft_proto.v1 import bundle_pb2

_SQUARES = ((8, 8), (4, 4), (2, 2), (16, 16), (3, 3), (1, 1), (5, 5), (32, 32))
NUM_PICTURES = len(_SQUARES)
# Of vowels as in beet, bat, father, boot and bird: the lowest three formants in Hz (Peterson and Barney 1952).
_FORMANTS = ((270, 2290, 3010), (660, 1720, 2410), (730, 1090, 2440), (300, 870, 2240), (490, 1350, 1690))
_SYLLABLE_S, _FORMANT_WIDTH, _NUM_HARMONICS = 0.25, 80.0, 32


def made_picture(image: bundle_pb2.ImageSpec, number: int = 0) -> bytes:
    """Return a PNG: coloured squares, of another size for each number below NUM_PICTURES.

    Of a model that reads tiles it is a strip: two of them, and few of their places. Of cells there are 2 x 3.
    """
    generator = torch.Generator().manual_seed(number)
    shape = (*_SQUARES[number], image.channels)
    squares = torch.randint(256, shape, generator=generator, dtype=torch.uint8).numpy()
    picture = Image.fromarray(squares[:, :, 0] if image.channels == 1 else squares)
    out = io.BytesIO()
    size = (2 * image.width, max(1, image.height // 4)) if image.HasField("tiling") else (image.width, image.height)
    if image.tiling.max_pixels:
        size = 3 * image.width, 2 * image.height
    picture.resize(size, Image.Resampling.NEAREST).save(out, "PNG")
    return out.getvalue()


def made_sound(audio: bundle_pb2.AudioSpec, number: int = 0) -> bytes:
    """Return a WAV of at most half a window, another for each number below NUM_SOUNDS; but long enough to be heard."""
    make, share = _SOUNDS[number]
    num_samples = max(1, least_samples(audio), int(share * window_samples(audio)))
    generator = torch.Generator().manual_seed(number)
    return wav_of(make(num_samples, audio.sample_rate, generator), audio.sample_rate)


def _tones(num_samples: int, rate: int, generator: torch.Generator) -> Tensor:
    """Six tones that come and go."""
    times = torch.arange(num_samples) / rate
    sound = torch.zeros(num_samples)
    for pitch, pace in zip(torch.rand(6, generator=generator), torch.rand(6, generator=generator), strict=True):
        tone = (2 * torch.pi * (100 + pitch * rate / 8) * times).sin()
        sound += 0.1 * tone * (2 * torch.pi * (1 + 3 * pace) * times).sin().clamp(min=0)
    return sound


def _vowels(num_samples: int, rate: int, generator: torch.Generator) -> Tensor:
    """Syllables of a voice that rises and falls: harmonics, the louder the nearer they are to a formant."""
    times = torch.arange(num_samples) / rate
    pitch = 110 + 40 * (2 * math.pi * 0.7 * times).sin()
    phase = 2 * math.pi * (pitch / rate).cumsum(0)
    sound = torch.zeros(num_samples)
    length = max(1, int(_SYLLABLE_S * rate))
    for start in range(0, num_samples, length):
        part = slice(start, start + length)
        formants = _FORMANTS[int(torch.randint(len(_FORMANTS), (), generator=generator))]
        syllable = torch.zeros_like(times[part])
        for harmonic in range(1, _NUM_HARMONICS + 1):
            distances = [(harmonic * pitch[part] - formant) / _FORMANT_WIDTH for formant in formants]
            loudness = sum(1 / (1 + distance**2) for distance in distances)
            syllable += loudness * (harmonic * phase[part]).sin() / math.sqrt(harmonic)
        swell = (math.pi * torch.arange(len(syllable)) / len(syllable)).sin()
        sound[part] = 0.15 * syllable * swell
    return sound


def _noise(num_samples: int, _: int, generator: torch.Generator) -> Tensor:
    return 0.1 * torch.randn(num_samples, generator=generator)


def _beeps(num_samples: int, rate: int, _: torch.Generator) -> Tensor:
    """Half a second of a tone, and half a second of nothing."""
    times = torch.arange(num_samples) / rate
    return 0.3 * (2 * math.pi * 440 * times).sin() * (1 - (2 * times).long() % 2)


def _silence(num_samples: int, _: int, __: torch.Generator) -> Tensor:
    return torch.zeros(num_samples)


# Each with its share of the window.
_SOUNDS = (
    (_tones, 1 / 2),
    (_vowels, 1 / 2),
    (_vowels, 1 / 6),
    (_vowels, 1 / 15),
    (_tones, 1 / 6),
    (_beeps, 1 / 6),
    (_noise, 1 / 6),
    (_silence, 1 / 6),
)
NUM_SOUNDS = len(_SOUNDS)
