"""espeak-ng, a synthesiser of speech by formants, and who speaks. It is under the GPL; nothing of it is kept."""

import ctypes
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ACCENTS = ("en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbcwmd")
TRAINED = (
    "m1", "m2", "m3", "m5", "m6", "m8", "f1", "f2", "f4", "Alex", "Andrea", "Andy", "Annie", "Denis", "Diogo",
    "Gene", "Henrique", "Jacky", "Lee", "Marco", "Mario", "Michael", "Mike", "adam", "antonio", "belinda",
    "benjamin", "boris", "david", "ed", "edward", "grandma", "grandpa", "ian", "john", "linda", "marcelo",
    "max", "miguel", "pablo", "paul", "pedro", "quincy", "rob", "robert", "sandro", "shelby", "steph",
    "victor", "zac",
)  # fmt: skip
HELD_OUT = (
    "m4", "m7", "f3", "f5", "Alicia", "Hugo", "Nguyen", "anika", "caleb", "travis",
)  # fmt: skip
"""Voices that are never trained on. Accents are no voices: each is trained on."""

_SYNCHRONOUS, _UTF8 = 2, 1
_RATE, _PITCH, _RANGE = 1, 3, 4
_END, _WORD, _PHONEME = 0, 1, 7
# Tell of phonemes too.
_PHONEMES = 1


@dataclass(frozen=True, slots=True)
class Voice:
    """Who speaks and how: words a minute, pitch and its range in [0, 100]."""

    name: str
    rate: int
    pitch: int
    range: int


Mark = tuple[float, str]
"""When something begins, in seconds, and what."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Samples float32 [num_samples] at `rate` Hz, and when each word and each phoneme begins, in seconds."""

    samples: Tensor
    rate: int
    words: list[Mark]
    phonemes: list[Mark]


def draw_voice(chance: random.Random, *, held_out: bool) -> Voice:
    """Return somebody."""
    name = f"{chance.choice(ACCENTS)}+{chance.choice(HELD_OUT if held_out else TRAINED)}"
    return Voice(name, chance.randint(130, 200), chance.randint(35, 65), chance.randint(30, 70))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_Heard = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class Synthesiser:
    """espeak-ng in this process, which has one at most."""

    def __init__(self) -> None:
        # Only who trains has it.
        import espeakng_loader  # noqa: PLC0415

        self._library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
        self._rate = self._library.espeak_Initialize(
            _SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), _PHONEMES
        )
        assert self._rate > 0, "espeak-ng does not find its data. This is a bug."
        self._samples = bytearray()
        self._starts: dict[int, float] = {}
        self._phonemes: list[Mark] = []
        self._heard = _Heard(self._hear)  # kept: the library holds no reference
        self._library.espeak_SetSynthCallback(self._heard)

    def speak(self, text: str, voice: Voice) -> Spoken:
        """Say a text."""
        self._samples.clear()
        self._starts.clear()
        self._phonemes.clear()
        if self._library.espeak_SetVoiceByName(voice.name.encode()) != 0:
            raise ValueError(f"espeak-ng has no voice {voice.name}")
        for name, value in ((_RATE, voice.rate), (_PITCH, voice.pitch), (_RANGE, voice.range)):
            self._library.espeak_SetParameter(name, value, 0)
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 0, 0, _UTF8, None, None)
        samples = torch.frombuffer(bytearray(self._samples), dtype=torch.int16).float() / 32768
        return Spoken(samples, self._rate, self._words(text), list(self._phonemes))

    def _hear(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._samples += ctypes.string_at(samples, 2 * count)
        index = 0
        while events[index].type != _END:
            at_s = events[index].audio_position / 1000
            if events[index].type == _WORD:
                self._starts.setdefault(events[index].text_position, at_s)
            elif events[index].type == _PHONEME:
                # Without stress, and no pause, "_".
                name = events[index].id.decode(errors="replace").strip("',_:")
                self._phonemes.append((at_s, name))
            index += 1
        return 0

    def _words(self, text: str) -> list[Mark]:
        """When each word begins. One that is spoken together with the word before has that word's beginning."""
        words, place, last = [], 1, 0.0
        for word in text.split():
            last = self._starts.get(place, last)
            words.append((last, word))
            place += len(word) + 1
        return words
