"""The recordings of workload g: English sentences, spoken by a synthesiser. Written by the harness."""

import torch
from workloads import NUM_SOUNDS, seconds_of

from weft_export.checkpoints.sound import wav_of
from weft_recipes.speech.voices import Synthesiser, Voice

RATE = 16_000
_TEXT = (
    "She put the old books on the table, and then she closed the window because it was cold outside. "
    "We are going to the market to buy bread, apples and a bottle of milk. "
    "The train to London leaves at half past seven in the morning from platform two. "
    "He asked me whether I had seen the film about the river, and I said that I had not. "
)
_VOICES = ("en-us", "en-gb-x-rp", "en-us+f4", "en-us+m3")


def write_sounds(folder):
    """Write NUM_SOUNDS recordings to `folder`/sounds/<n>.wav: 16 bits, 16 kHz, of seconds_of(n) seconds."""
    fresh, synthesiser = folder / "sounds.fresh", Synthesiser()
    fresh.mkdir(parents=True, exist_ok=True)
    for number in range(NUM_SOUNDS):
        spoken = synthesiser.speak(_TEXT * 2, Voice(_VOICES[number % len(_VOICES)], 150, 50, 50))
        count = int(len(spoken.samples) * RATE / spoken.rate)
        samples = torch.nn.functional.interpolate(spoken.samples[None, None], size=count, mode="linear")[0, 0]
        (fresh / f"{number}.wav").write_bytes(wav_of(samples[: seconds_of(number) * RATE], RATE))
    fresh.rename(folder / "sounds")
