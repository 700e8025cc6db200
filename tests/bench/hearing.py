"""How well a served `commands` hears: phrases and voices that it was never trained on, spoken now, through the server.

weft serve --repository build/models        # in one shell
python tests/bench/hearing.py               # in another: a minute
"""

import sys

import weft
from weft_recipes.commands import NOISE_DB, NUM_HELD_OUT, SEED, recordings
from weft_recipes.shared.word_errors import word_error_rate
from weft_recipes.speech.clips import say
from weft_recipes.speech.phrases import sample


def main(target):
    """Print the word error rate at each loudness of noise."""
    phrases = sample(NUM_HELD_OUT, SEED + 1, held_out=True)
    said = list(say(phrases, SEED + 1, held_out=True, on_progress=lambda *_: None))
    wanted = [clip.phrase.text for clip, _ in said]
    with weft.Client(target) as client:
        client.wait_until_ready()
        for below in NOISE_DB:
            files = [each.wav for each in recordings(said, below)]
            heard = [answer.text for answer in client.transcribe_many(files, model="commands")]
            print(f"noise {below} dB below: {word_error_rate(heard, wanted):.4f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7070")
