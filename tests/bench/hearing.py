"""How well a served `commands` hears, and tells when each word was said, through the server.

Phrases and voices are those that it was never trained on, spoken now.

weft serve --repository build/models        # in one shell
python tests/bench/hearing.py               # in another: a minute
"""

import statistics
import sys

import weft
from weft_recipes.commands import NOISE_DB, NUM_HELD_OUT, SEED, recordings
from weft_recipes.shared.figures import word_error_rate
from weft_recipes.speech.clips import SOUND, say
from weft_recipes.speech.utterances import sample


def late_by(answer, recording, clip, samples):
    """How many seconds the beginning of each word lies from the synthesiser's. Nothing if a word was heard wrong."""
    if answer.text != clip.phrase.text:
        return []
    before_s = (len(recording.samples) - len(samples)) / 2 / SOUND.sample_rate
    return [abs(word.start_s - before_s - at_s) for word, (at_s, _) in zip(answer.words, clip.words, strict=True)]


def main(target):
    """Print the word error rate at each loudness of noise, and how well words are placed."""
    phrases = sample(NUM_HELD_OUT, SEED + 1, held_out=True)
    said = list(say(phrases, SEED + 1, held_out=True, on_progress=lambda *_: None))
    wanted = [clip.phrase.text for clip, _ in said]
    with weft.Client(target) as client:
        client.wait_until_ready()
        for below in NOISE_DB:
            made = recordings(said, below)
            answers = list(client.transcribe_many([each.wav for each in made], model="commands", explain=True))
            late = [
                each
                for answer, recording, (clip, samples) in zip(answers, made, said, strict=True)
                for each in late_by(answer, recording, clip, samples)
            ]
            rate = word_error_rate([answer.text for answer in answers], wanted)
            placed = f"{statistics.median(late):.3f} s, nine in ten {statistics.quantiles(late, n=10)[-1]:.3f} s"
            print(f"noise {below} dB below: {rate:.4f}; {len(late)} words begin off by {placed}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7070")
