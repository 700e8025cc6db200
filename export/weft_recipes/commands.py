"""Recipe `commands`: speech to text of numbers and commands, by a model in Whisper's shape."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import write_held_out
from weft_export.checkpoints.sound import log_mel, wav_of
from weft_export.console import OnProgress
from weft_export.families.speech import Speech, SpeechConfig
from weft_proto.v1 import bundle_pb2
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch, word_error_rate
from weft_recipes.shared.greedy import greedy
from weft_recipes.shared.training import fit, pad, prepare
from weft_recipes.shared.vocabulary import END, PAD, START, word_tokenizer
from weft_recipes.speech import mixing
from weft_recipes.speech.clips import SOUND, WINDOW_S, Clip, Said, say
from weft_recipes.speech.mixing import bank, noisy
from weft_recipes.speech.utterances import HELD_OUT_SHARE, Utterance, sample, words
from weft_recipes.speech.voices import ACCENTS, HELD_OUT, TRAINED, Mark

SEED = 31
NUM_TRAINED, NUM_HELD_OUT = 7_000, 600
BATCH, NUM_STEPS, PEAK_LR = 32, 1_500, 2e-3
MAX_TARGET = 40
PLACES_WEIGHT = 0.5
"""How much it counts that the encoder tells what is said at each of its places, which espeak-ng knows."""
TIME_STEPS = 10
"""Moments that a second has in an answer."""
NOISE_DB = (40, 30, 20, 10)
"""How far below what is said the noise is where the model is measured. Held out and shown are those of the first."""
_WORDS, _PHONEMES = attrgetter("words"), attrgetter("phonemes")
NO_TIMES = "<|notimestamps|>"


@dataclass(frozen=True, slots=True)
class Recording:
    """What is said, and samples float32 [at most a window] at SOUND's rate."""

    phrase: Utterance
    samples: Tensor

    @property
    def wav(self) -> bytes:
        """The file."""
        return wav_of(self.samples, SOUND.sample_rate)


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures of voices and phrases never trained on."""
    watch = Stopwatch()
    generator = prepare(SEED)
    phrases = sample(NUM_TRAINED, SEED, held_out=False)
    clips = [clip for clip, _ in say(phrases, SEED, held_out=False, on_progress=on_progress)]
    spoken = watch.figures()["wall seconds"]
    tokenizer = _tokenizer()
    model = Speech(
        SpeechConfig(
            target_vocab_size=tokenizer.get_vocab_size(),
            max_target_tokens=MAX_TARGET,
            num_mels=SOUND.num_mels,
            num_frames=SOUND.num_frames,
            d_model=128,
            num_encoder_heads=4,
            d_encoder_ff=256,
            num_encoder_layers=3,
            num_decoder_heads=4,
            d_decoder_ff=256,
            num_decoder_layers=2,
        )
    )
    losses = _Losses(model, tokenizer, clips, bank(SOUND, 96, generator))
    fit(losses, losses.of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, on_progress=on_progress)
    model.eval()
    phrases = sample(NUM_HELD_OUT, SEED + 1, held_out=True)
    said = list(say(phrases, SEED + 1, held_out=True, on_progress=on_progress))
    test = recordings(said, NOISE_DB[0])
    save_checkpoint(out, _checkpoint(model, tokenizer, test[0]))
    figures = measure(out, said)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures["recordings trained on"] = len(clips)
    figures["distinct phrases trained on"] = len({clip.phrase.text for clip in clips})
    figures |= watch.figures() | {"wall seconds of these for speaking": spoken}
    write_examples(out, test)
    write_held_out(out, [(each.wav, each.phrase.text) for each in test[1:25]])
    write_card(out, CARD, figures)
    return figures


class _Losses(nn.Module):
    """The losses of batches: of the next token, and of the words and the phonemes at each place.

    A layer reads phonemes off the encoder's first layer, and one words off its last. A server has no use for either. A
    model of this size learns to listen many times as fast with them.
    """

    def __init__(self, model: Speech, tokenizer: Tokenizer, clips: list[Clip], noises: Tensor) -> None:
        super().__init__()
        self.model = model
        self._ids = tokenizer.get_vocab()
        self._words, self._phonemes = (_numbered(clips, marks_of) for marks_of in (_WORDS, _PHONEMES))
        self.words = nn.Linear(model.config.d_model, len(self._words))
        self.phonemes = nn.Linear(model.config.d_model, len(self._phonemes))
        self._noises, self._chance = noises, random.Random(SEED)  # noqa: S311 - data, not secrets
        self._clips = clips
        self._early = torch.empty(0)
        model.encoder.layers[0].register_forward_hook(self._note)

    def of(self, step: int) -> Tensor:  # noqa: ARG002 - every step is alike
        """Return the loss of a new batch."""
        windows = [self._window() for _ in range(BATCH)]
        features = mixing.heard(windows, self._noises, self._chance)
        rows, counted = zip(*(self._target(window) for window in windows), strict=True)
        target, wanted = pad(list(rows), PAD), pad(list(counted), PAD)
        encoded, mask = self.model.encode(features)
        logits = self.model.decoder(target[:, :-1], self.model.decoder.project(encoded), mask)
        written = functional.cross_entropy(logits.flatten(0, 1), wanted[:, 1:].flatten(), ignore_index=PAD)
        words = _told(self.words(encoded), mixing.said_at(windows, _WORDS, self._words))
        phonemes = _told(self.phonemes(self._early), mixing.said_at(windows, _PHONEMES, self._phonemes))
        self.parts = (written.item(), words.item(), phonemes.item())
        return written + PLACES_WEIGHT * (words + phonemes)

    def _note(self, _layer: nn.Module, _given: Any, out: Tensor) -> None:
        self._early = out

    def _window(self) -> list[mixing.Placed]:
        return mixing.place(self._chance.choices(self._clips, k=self._chance.choice((1, 2, 3))), self._chance)

    def _target(self, window: list[mixing.Placed]) -> tuple[list[int], list[int]]:
        """Return what an answer is, and what of it the model is to learn: not what a request decides."""
        ids = self._ids
        times = self._chance.random() < 0.4
        asked = [] if times else [ids[NO_TIMES]]
        written: list[int] = []
        for placed in window:
            text = [ids["▁" + word] for word in placed.clip.phrase.text.split()]
            start, end = (ids[_moment(round(at * TIME_STEPS))] for at in (placed.start_s, placed.end_s))
            written += [start, *text, end] if times else text
        return [START, *asked, *written, END], [START, *[PAD] * len(asked), *written, END]


def _numbered(clips: list[Clip], marks_of: Callable[[Clip], list[Mark]]) -> dict[str, int]:
    """Number what is said from 1 on. A pause is 0."""
    names = {name for clip in clips for _, name in marks_of(clip)} - {""}
    return {"": 0} | {name: index for index, name in enumerate(sorted(names), start=1)}


def _told(logits: Tensor, said: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), said.flatten())


def measure(directory: Path, said: list[Said]) -> Figures:
    """Measure a stored checkpoint on phrases and voices it was never trained on, with noise."""
    wanted = [clip.phrase.text for clip, _ in said]
    rates: Figures = {}
    for below in NOISE_DB:
        heard = answers(directory, recordings(said, below))
        rates[f"word error rate, noise {below} dB below"] = word_error_rate(heard, wanted)
    return rates | {"held-out recordings": len(said)}


def write_examples(directory: Path, recordings: list[Recording]) -> None:
    """Write recordings that are worth hearing, named by what is said: two long ones, and two short ones in one.

    They are the first such ones that the checkpoint in `directory` hears right, if it does so with any.
    """
    heard = zip(recordings, answers(directory, recordings), strict=True)
    ranked = [each for each, _ in sorted(heard, key=lambda pair: pair[1] != pair[0].phrase.text)]
    examples = [next(each for each in ranked if each.phrase.text.startswith(word)) for word in ("set a timer", "call")]
    short = [each for each in ranked if len(each.samples) < WINDOW_S / 2 * SOUND.sample_rate]
    one, other = short[0], next(each for each in short if each.phrase != short[0].phrase)
    both = Utterance(f"{one.phrase.text} {other.phrase.text}", is_held_out=True)
    examples.append(Recording(both, torch.cat((one.samples, other.samples))))
    folder = directory / "examples"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.wav"):
        old.unlink()
    for example in examples:
        (folder / f"{example.phrase.text.replace(' ', '-')}.wav").write_bytes(example.wav)


def recordings(said: Iterable[Said], decibels: float) -> list[Recording]:
    """Return clips with a little silence around them and noise so far below, another each time."""
    generator = torch.Generator().manual_seed(SEED)
    made = []
    for index, (clip, samples) in enumerate(said):
        rest = round(WINDOW_S * SOUND.sample_rate) - len(samples)
        around = min(rest // 2, SOUND.sample_rate // 4)
        padded = functional.pad(torch.from_numpy(samples), (around, around))
        made.append(Recording(clip.phrase, noisy(padded, SOUND.sample_rate, decibels, index % 3, generator)))
    return made


@torch.no_grad()
def answers(directory: Path, recordings: list[Recording]) -> list[str]:
    """Return what a stored checkpoint hears in recordings, greedily."""
    checkpoint = load_checkpoint(directory)
    assert isinstance(checkpoint.model, Speech)
    tokenizer = Tokenizer.from_str(checkpoint.files["target.json"].decode())
    begin = [START, tokenizer.get_vocab()[NO_TIMES]]
    heard: list[str] = []
    for first in range(0, len(recordings), 100):
        features = torch.stack([log_mel(each.samples, SOUND) for each in recordings[first : first + 100]])
        ids = greedy(checkpoint.model, features, start=begin, end=END, max_new_tokens=MAX_TARGET - 2)
        heard += tokenizer.decode_batch(ids)
    return heard


def _moment(steps: int) -> str:
    return f"<|{steps / TIME_STEPS:.2f}|>"


def _tokenizer() -> Tokenizer:
    """Words, then what an answer begins with, then the moments of a window."""
    tokenizer = word_tokenizer(words())
    special = [NO_TIMES, *(_moment(steps) for steps in range(round(WINDOW_S * TIME_STEPS) + 1))]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def _audio(tokenizer: Tokenizer) -> bundle_pb2.AudioSpec:
    ids = tokenizer.get_vocab()
    audio = bundle_pb2.AudioSpec(
        no_timestamps_id=ids[NO_TIMES],
        first_timestamp_id=ids[_moment(0)],
        timestamp_samples=SOUND.sample_rate // TIME_STEPS,
    )
    audio.MergeFrom(SOUND)
    return audio


def _checkpoint(model: Speech, tokenizer: Tokenizer, golden: Recording) -> Checkpoint:
    return Checkpoint(
        family="speech",
        description="Writes down spoken numbers and commands",
        model=model,
        golden=bundle_pb2.Golden(audio_path="golden.wav"),
        text=bundle_pb2.TextSpec(
            target_tokenizer="target.json",
            target_vocab_size=model.config.target_vocab_size,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=MAX_TARGET,
            max_new_tokens=MAX_TARGET - 2,
        ),
        audio=_audio(tokenizer),
        max_new_tokens=MAX_TARGET - 2,
        attention_layer=1,
        files={"target.json": tokenizer.to_str().encode(), "golden.wav": golden.wav},
    )


CARD = Card(
    name="commands",
    title="spoken numbers and commands",
    summary="Writes down what is said, `set a timer for forty two minutes`, and tells when.",
    data=f"""Phrases of a grammar (`weft_recipes/speech/utterances.py`), synthesised by espeak-ng 1.52 (PyPI
`espeakng-loader`) in {len(ACCENTS)} accents of English and {len(TRAINED)} voices, at 130 to 200 words a minute. In
training each window holds one to three of them, with another noise and another room each time. One number of several
words in {HELD_OUT_SHARE} (by a hash) and one phrase in {HELD_OUT_SHARE} occur in no recording trained on, and
{len(HELD_OUT)} voices spoke none of them. The held-out figures are of these phrases by these voices, with white, pink
or brown noise.""",
    model=f"""Whisper's shape (Radford et al. 2022): two convolutions, an encoder of 3 layers and a decoder of 2, width
128, 4 heads; {SOUND.num_mels} mels of {SOUND.sample_rate:,} samples a second, windows of {WINDOW_S} s; float32. Each
word is one token.""",
    notes="""- It knows the words of its grammar and the voices of one synthesiser. Of people it makes nonsense.
- espeak-ng is under the GPL. It is used to synthesise; Weft ships none of it. The recordings here are its output.
- In training the encoder also tells which word and which phoneme is said at each place, by two layers that are thrown
  away. The attention of the decoder is not guided.
- `examples/` holds three held-out recordings, named by what is said: the first of their kind that it hears right.""",
)
