"""What the load asks: for each kind of call the client's verb, its inputs, its options, and how often it comes."""

import wave
from contextlib import ExitStack
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from weft import Alternatives, Beams, Decoding, Sampling

CHECKPOINTS = Path(__file__).parents[2] / "export" / "checkpoints"


def _pictures(name):
    return tuple(path.read_bytes() for path in sorted((CHECKPOINTS / name / "examples").glob("*.png")))


def _recordings(name):
    """Examples of a model, and all of them one behind the other: several windows."""
    files = tuple(path.read_bytes() for path in sorted((CHECKPOINTS / name / "examples").glob("*.wav")))
    whole = BytesIO()
    with ExitStack() as stack:
        parts = [stack.enter_context(wave.open(BytesIO(file))) for file in files]
        out = stack.enter_context(wave.open(whole, "wb"))
        out.setparams(parts[0].getparams())
        for part in parts:
            out.writeframes(part.readframes(part.getnframes()))
    return (*files, whole.getvalue())


SOURCES = ("we are eating bread", "the boy sees the house and the girl sees the garden", "the old man is here", "a cat")
PROMPTS = ("Return a list of", "Return a socket connected to the given host and", "Raise an error if", "Open a file")
DOCS = (
    "Return a socket object",
    "the team won the match on Sunday",
    "Open a new window",
    "a new phone with two screens",
)
NAMED = ("Ann lives in Paris", "Zoë Krüger paid €40 for 3 kg of rice in Łódź on 12 May 2021.", "Eve 🎉 went to Rome")
PAIRS = (("we are eating bread", "estamos comiendo pan"), ("the cat drinks milk", "el gato bebe leche"))
# The longest has a hundred times the tokens of a request.
CUT = (*SOURCES, *NAMED, " ".join(SOURCES) * 100)
IDS = (([377, 219, 665, 2],), ([5, 900, 31] * 400,))
EMBEDDED = ("the cat", "the dog eats and the bird finds", "green tree", "a small house")
CONTEXTS = (("the cat eats and the dog finds a green house", "the cat"), ("a small bird", "we see"))
MASKED = ("the [UNKNOWN] eats", "a [UNKNOWN] sees the [UNKNOWN] and the green tree")
SCENES, DIGITS, SPOKEN = _pictures("scenes"), _pictures("digits"), _recordings("commands")
QUESTIONS = ("how many triangles are there?", "what is left of the purple triangle?", "is there a blue cross?")
ASKED = tuple(product(_pictures("scenes-answers"), QUESTIONS))


class Ask(NamedTuple):
    """One kind of call. Each input is the verb's first arguments; `image` in their place is named."""

    task: str
    how: str
    inputs: tuple[Any, ...]
    options: dict[str, Any]
    weight: float = 1.0
    priority: str | None = None

    @property
    def name(self):
        """Its name in reports."""
        return f"{self.task}, {self.how}"

    @property
    def verb(self):
        """Its method in the client."""
        return self.task.split()[0]

    @property
    def can_stream(self):
        """Whether the client has a stream for it."""
        return self.verb in {"translate", "caption", "answer", "transcribe", "generate"}

    @property
    def can_complete(self):
        """Whether OpenAI's API is asked for the same: a text without more."""
        return self.name in {"generate, greedy", "generate, greedy, low"}

    def arguments(self, number):
        """Positional and named arguments of the verb, for the input of a number."""
        given = self.inputs[number]
        if self.task in {"classify image", "classify by labels"}:
            return (), {"image": given, **self.options}
        return given if isinstance(given, tuple) else (given,), self.options


def _writes(how, weight=1.0, priority=None, *, task="generate", inputs=PROMPTS, model="pydocs", rest=None, **decoding):
    options = {"model": model, "decoding": Decoding(**{"max_new_tokens": 40} | decoding), **(rest or {})}
    return Ask(task, how, inputs, options, weight, priority)


def _translates(how, weight=1.0, priority=None, **rest):
    return _writes(how, weight, priority, task="translate", inputs=SOURCES, model="en-es", **rest)


def _captions(how, weight=1.0, **rest):
    return _writes(how, weight, task="caption", inputs=SCENES, model="scenes", **{"max_new_tokens": 24} | rest)


def _asks(how, weight=1.0, rest=None, **decoding):
    more = {"max_new_tokens": 12} | decoding
    return _writes(how, weight, task="answer", inputs=ASKED, model="scenes-answers", rest=rest, **more)


def _transcribes(how, weight=1.0, inputs=SPOKEN, **rest):
    return _writes(how, weight, task="transcribe", inputs=inputs, model="commands", max_new_tokens=30, rest=rest)


def _reads(task, inputs, model, **options):
    return (
        Ask(task, "plain", inputs, {"model": model, **options}, 3),
        Ask(task, "explain", inputs, {"model": model, "explain": True}),
    )


DRAW = Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=7)
SCORES = {"return_scores": True, "num_top_tokens": 3}
ASKS = (
    _translates("greedy", 4),
    _translates("greedy, high", priority="high"),
    _translates("4 beams", strategy=Beams(4), num_outputs=3),
    _translates("2 draws", strategy=DRAW, num_outputs=2),
    _translates("explain", rest={"explain": True}),
    _translates("scores, low", priority="low", rest=SCORES),
    _captions("greedy", 2),
    _captions("3 beams", strategy=Beams(3)),
    _captions("explain", rest={"explain": True}),
    _asks("greedy", 2),
    _asks("3 beams", strategy=Beams(3)),
    _asks("explain", rest={"explain": True}),
    _transcribes("greedy", 2),
    _transcribes("timestamps", timestamps=True),
    _transcribes("explain", inputs=SPOKEN[:-1], explain=True),
    _writes("greedy", 3),
    _writes("greedy, low", priority="low", max_new_tokens=100),
    _writes("draw, high", priority="high", strategy=DRAW),
    _writes("3 draws", strategy=DRAW, num_outputs=3),
    _writes("4 beams", strategy=Beams(4), num_outputs=2),
    _writes("alternatives", strategy=Alternatives(), num_outputs=3),
    _writes("stop strings", stop=("the", "\n")),
    _writes("regex", regex="[a-z ]{4,20}\\."),
    _writes("choices", choices=(" return it.", " close it.", " none")),
    _writes("penalties", repetition_penalty=1.3, no_repeat_ngram_size=2),
    _writes("scores", rest={**SCORES, "return_prompt_scores": True}),
    _writes("explain", rest={"explain": True}),
    *_reads("classify text", DOCS, "topics"),
    *_reads("classify image", DIGITS, "digits"),
    *_reads("tag", NAMED, "tags"),
    *_reads("extract", CONTEXTS, "tiny-extract", top_k=3),
    *_reads("fill_mask", MASKED, "tiny-masks"),
    Ask("embed texts", "plain", ((EMBEDDED,), (EMBEDDED[:1],)), {"model": "tiny-embed"}, 2),
    Ask("embed texts", "explain", ((EMBEDDED[1:2],),), {"model": "tiny-embed", "explain": True}),
    Ask("classify by labels", "plain", DIGITS, {"model": "tiny-match", "labels": EMBEDDED}, 2),
    Ask("classify by labels", "explain", DIGITS, {"model": "tiny-match", "labels": EMBEDDED, "explain": True}),
    Ask("score", "plain", PAIRS, {"model": "en-es", "num_top_tokens": 2}, 2),
    Ask("tokenize", "plain", CUT, {"model": "en-es"}, 2),
    Ask("detokenize", "plain", IDS, {"model": "en-es"}),
)
TASKS = tuple(dict.fromkeys(ask.task for ask in ASKS))
