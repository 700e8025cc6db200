"""Recipe `scenes-answers`: answers to questions about drawn scenes, by the captioner of `scenes`, taught to listen."""

import io
import random
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import HeldOut, write_held_out
from weft_export.checkpoints.picture import to_pixel_values
from weft_export.console import OnProgress
from weft_export.families.captioner import Answerer
from weft_proto.v1 import bundle_pb2
from weft_recipes.pictures.drawing import render
from weft_recipes.pictures.gallery import GRID, IMAGE, PICTURE_SIDE, SIDE, draw, normalize, png, write_named_by_things
from weft_recipes.pictures.questions import CROWDED_SHARE, Question, ask, sample_scenes
from weft_recipes.pictures.scene import HELD_OUT_SHARE, Scene
from weft_recipes.shared.base import load_base
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.greedy import greedy
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import END, PAD, START, word_tokenizer

SEED = 31
NUM_TRAINED, NUM_HELD_OUT = 16_000, 1_000
PEAK_LR = 2e-3
BATCH, ASKED, NUM_STEPS, MUON_LR = 64, 4, 700, 6e-3
"""Of the first lessons, in which what sees stays as it is: ASKED questions about each picture of a batch."""
LAST_BATCH, LAST_ASKED, NUM_LAST_STEPS, LAST_MUON_LR = 32, 6, 900, 3e-3
"""Of the last ones, in which all is trained. It had never seen more than two things."""
MAX_QUESTION, MAX_ANSWER = 32, 16
IGNORED = -100


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out combinations."""
    watch = Stopwatch()
    generator = prepare(SEED)
    rng = random.Random(SEED)  # noqa: S311 - questions, not secrets
    scenes = sample_scenes(NUM_TRAINED, SEED, held_out=False)
    tokenizer = word_tokenizer(_words(scenes))
    model = begin(tokenizer)
    pictures = draw(scenes, on_progress)
    seen, everything = _seen(model, pictures, on_progress)
    order = shuffled(NUM_TRAINED, BATCH, generator)

    def listens(_: int) -> Tensor:
        chosen = next(order)
        asked = [ask(scenes[index], rng) for index in chosen.tolist() for _ in range(ASKED)]
        return _loss(model, tokenizer, asked, seen[chosen].float(), everything)

    fit(model, listens, num_steps=NUM_STEPS, peak_lr=PEAK_LR, muon_lr=MUON_LR, on_progress=on_progress)
    look_closer(model, tokenizer, scenes, pictures, on_progress)
    shown = sample_scenes(200, SEED + 1, held_out=False)
    layers = range(model.config.num_decoder_layers)
    layer = max(layers, key=lambda index: measure_pointing(model, tokenizer, shown, index))
    examples = examples_of_scenes()
    save_checkpoint(out, _checkpoint(model, tokenizer, layer, examples[0]))
    write_named_by_things(out / "examples", examples)
    figures = measure(out, NUM_HELD_OUT)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures["scenes trained on"] = NUM_TRAINED
    figures |= watch.figures()
    write_held_out(out, held_out())
    write_card(out, CARD, figures)
    return figures


def look_closer(
    model: Answerer, tokenizer: Tokenizer, scenes: list[Scene], pictures: Tensor, on_progress: OnProgress
) -> None:
    """Train what sees too, with other questions."""
    rng = random.Random(SEED + 4)  # noqa: S311 - questions, not secrets
    order = shuffled(len(scenes), LAST_BATCH, torch.Generator().manual_seed(SEED + 4))
    for weight in model.parameters():
        weight.requires_grad = True

    def sees(_: int) -> Tensor:
        chosen = next(order)
        asked = [ask(scenes[index], rng) for index in chosen.tolist() for _ in range(LAST_ASKED)]
        return _loss(model, tokenizer, asked, *model.encode(normalize(pictures[chosen])))

    fit(model, sees, num_steps=NUM_LAST_STEPS, peak_lr=PEAK_LR, muon_lr=LAST_MUON_LR, on_progress=on_progress)


def _loss(model: Answerer, tokenizer: Tokenizer, asked: list[Question], seen: Tensor, everything: Tensor) -> Tensor:
    """Return the loss of the answers, as many to each of the pictures seen [pictures, patches, d_model]."""
    rows = tokenized(tokenizer, asked)
    target = pad([row[:-1] for row, _ in rows], PAD)
    labels = pad([[IGNORED] * (num_given - 1) + row[num_given:] for row, num_given in rows], IGNORED)
    logits = model.decoder(target, model.decoder.project(seen), everything)
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def begin(tokenizer: Tokenizer) -> Answerer:
    """Return the model before training: the captioner `scenes`, with the vectors of the words that both know.

    What sees stays as it is.

    Raises:
        ExportError: there is no such checkpoint.
    """
    checkpoint = load_base("scenes")
    captioner = checkpoint.model
    known = Tokenizer.from_str(checkpoint.files["target.json"].decode()).get_vocab()
    words = tokenizer.get_vocab()
    size = {"target_vocab_size": len(words), "max_target_tokens": MAX_QUESTION + MAX_ANSWER}
    model = Answerer(replace(captioner.config, **size))
    vectors = model.decoder.embedding.tokens.weight.detach().clone()
    weights = captioner.state_dict()
    old = weights["decoder.embedding.tokens.weight"]
    for word in words.keys() & known.keys():
        vectors[words[word]] = old[known[word]]
    model.load_state_dict(weights | {"decoder.embedding.tokens.weight": vectors})
    for weight in (*model.patches.parameters(), *model.encoder.parameters(), model.positions):
        weight.requires_grad = False
    return model


@torch.no_grad()
def _seen(model: Answerer, pictures: Tensor, on_progress: OnProgress) -> tuple[Tensor, Tensor]:
    """Return what the encoder makes of pictures, float16 [pictures, patches, d_model], and the mask over it."""
    model.eval()
    parts = []
    everything = torch.ones(0)
    for first in range(0, len(pictures), 250):
        encoded, everything = model.encode(normalize(pictures[first : first + 250]))
        parts.append(encoded.half())
        on_progress(first + len(encoded), len(pictures), "looking")
    return torch.cat(parts), everything


def tokenized(tokenizer: Tokenizer, asked: list[Question]) -> list[tuple[list[int], int]]:
    """Return of each question all tokens, its answer's and the end included, and how many of them are given."""
    questions = tokenizer.encode_batch([question.text for question in asked])
    answers = tokenizer.encode_batch([question.answer for question in asked], add_special_tokens=False)
    return [
        ([START, *question.ids, *answer.ids, END], 1 + len(question.ids))
        for question, answer in zip(questions, answers, strict=True)
    ]


@torch.no_grad()
def answer(model: Answerer, tokenizer: Tokenizer, pictures: list[Image.Image], questions: list[str]) -> list[str]:
    """Answer a question about each picture, of any size, greedily."""
    answers: list[str] = []
    for picture, encoding in zip(pictures, tokenizer.encode_batch(questions), strict=True):
        pixels = torch.from_numpy(to_pixel_values(picture, IMAGE))[None]
        given = [START, *encoding.ids]
        (ids,) = greedy(model, pixels, start=given, end=END, max_new_tokens=MAX_ANSWER)
        answers.append(tokenizer.decode(ids))
    return answers


def asked_scenes(count: int, seed: int, *, held_out: bool) -> list[tuple[Scene, Question]]:
    """Return scenes with a question about each."""
    rng = random.Random(seed)  # noqa: S311 - questions, not secrets
    return [(scene, ask(scene, rng)) for scene in sample_scenes(count, seed, held_out=held_out)]


def measure(directory: Path, count: int) -> Figures:
    """Measure a stored checkpoint on `count` questions about large pictures of combinations it was never trained on."""
    checkpoint = load_checkpoint(directory)
    assert isinstance(checkpoint.model, Answerer)
    tokenizer = Tokenizer.from_str(checkpoint.files["words.json"].decode())
    asked = asked_scenes(count, SEED + 2, held_out=True)
    pictures = [render(scene, PICTURE_SIDE) for scene, _ in asked]
    answers = answer(checkpoint.model, tokenizer, pictures, [question.text for _, question in asked])
    right = [given == question.answer for given, (_, question) in zip(answers, asked, strict=True)]
    few = [hit for hit, (scene, _) in zip(right, asked, strict=True) if len(scene.things) <= 2]
    figures: Figures = {
        "exact match on held-out combinations of one or two things": sum(few) / len(few),
        "exact match in held-out crowds of three or four": (sum(right) - sum(few)) / (count - len(few)),
        "exact match, all": sum(right) / count,
        "held-out questions": count,
    }
    for kind, begins in KINDS.items():
        hits = [hit for hit, (_, question) in zip(right, asked, strict=True) if question.text.startswith(begins)]
        figures[f"exact match: {kind}"] = sum(hits) / len(hits)
    shown = [scene for scene, _ in asked[:300]]
    pointing = measure_pointing(checkpoint.model, tokenizer, shown, checkpoint.explained_layer)
    return figures | {f"pointing (layer {checkpoint.explained_layer})": pointing}


KINDS = {
    "what stands where": ("what is ", "where "),
    "numbers": ("how many ",),
    "colours, shapes, sizes": ("what color ", "what shape ", "how large "),
    "yes or no": ("is ",),
}
"""What questions of a kind begin with."""


@torch.no_grad()
def measure_pointing(model: Answerer, tokenizer: Tokenizer, scenes: list[Scene], layer: int) -> float:
    """Return the share of answers about a thing whose last word looks most at a patch in the square around it."""
    rng = random.Random(SEED)  # noqa: S311 - questions, not secrets
    hits = total = 0
    for scene in scenes:
        question = ask(scene, rng)
        if question.about is None:
            continue
        ((row, num_given),) = tokenized(tokenizer, [question])
        pixels = torch.from_numpy(to_pixel_values(render(scene, SIDE), IMAGE))[None]
        # What a word is chosen from is read at the token before it: of the last word, the third from the end.
        target = torch.tensor([row[:-2]])
        weights, *_ = model.explain(torch.tensor([layer]), torch.tensor([-1]), target, pixels)
        assert num_given <= len(weights)
        down, across = divmod(int(weights[-1].argmax()), GRID)
        x, y = (across + 0.5) / GRID, (down + 0.5) / GRID
        reach = question.about.radius + 0.5 / GRID
        hits += abs(x - question.about.x) <= reach and abs(y - question.about.y) <= reach
        total += 1
    return hits / total


def held_out() -> HeldOut:
    """Return questions about combinations that were never trained on, at the model's own size, and their answers."""
    examples = []
    for scene, question in asked_scenes(60, SEED + 2, held_out=True):
        file = io.BytesIO()
        render(scene, SIDE).save(file, "JPEG", quality=85)
        examples.append((file.getvalue(), question.answer, question.text))
    return examples


def examples_of_scenes() -> list[Scene]:
    """Return held-out scenes worth showing: a thing left or right of another, and a crowd."""
    scenes = sample_scenes(100, SEED + 3, held_out=True)
    tests = (
        lambda scene: scene.relation in ("to the left of", "to the right of"),
        lambda scene: len(scene.things) > 2,
    )
    return [next(filter(test, scenes)) for test in tests]


def _words(scenes: list[Scene]) -> list[str]:
    """Return the words of questions and answers."""
    rng = random.Random(SEED)  # noqa: S311 - questions, not secrets
    asked = [ask(scene, rng) for scene in scenes for _ in range(2)]
    texts = [text for question in asked for text in (question.text.replace("?", " ?"), question.answer)]
    return [word for text in texts for word in text.split()]


def _checkpoint(model: Answerer, tokenizer: Tokenizer, layer: int, golden: Scene) -> Checkpoint:
    vocab_size = model.config.target_vocab_size
    _, other = golden.things
    relation = "left of" if golden.relation == "to the left of" else "right of"
    return Checkpoint(
        family="answerer",
        description="Answers to questions about drawn scenes of up to four coloured shapes",
        model=model,
        golden=bundle_pb2.Golden(
            image_path="golden.png", question=f"what is {relation} the {other.color} {other.shape}?"
        ),
        text=bundle_pb2.TextSpec(
            source_tokenizer="words.json",
            target_tokenizer="words.json",
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_source_tokens=MAX_QUESTION,
            max_total_tokens=model.config.max_target_tokens,
            max_new_tokens=MAX_ANSWER,
        ),
        image=IMAGE,
        max_new_tokens=MAX_ANSWER,
        attention_layer=layer,
        files={"words.json": tokenizer.to_str().encode(), "golden.png": png(golden)},
    )


CARD = Card(
    name="scenes-answers",
    title="questions about drawn scenes",
    summary="Answers what is asked about a picture of up to four coloured shapes: `what is left of the red circle?`,"
    " `how many stars are there?`, `what color is the square?`, `is there a blue cross?`",
    data=f"""The scenes of `scenes`, and in {CROWDED_SHARE:.0%} crowds of three or four things
(`weft_recipes/pictures/questions.py`). Each question has exactly one right answer. Questions are drawn anew each time a
picture is shown. One combination of coloured shapes in {HELD_OUT_SHARE} (by a hash), and of a lone coloured shape and
its place, occurs in no training picture; the held-out figures are of one question about each of 1,000 pictures of these
combinations only, drawn at {PICTURE_SIDE} x {PICTURE_SIDE} pixels and resized as a server would.""",
    model=f"""A vision encoder and a Transformer decoder of two layers over the {GRID * GRID} places of its memory. The
decoder reads the question as the beginning of its own text. Width 128, 4 heads, pre-norm; float32. Each word is one
token. Training begins with the weights of `scenes`: {NUM_STEPS:,} steps with an encoder that stays as it is, and then
{NUM_LAST_STEPS:,} in which all is trained.""",
    notes="""- It counts badly: how many of a shape or colour are in a crowd of four is right in 73 of 100 cases.
- It knows these scenes and these forms of questions, and nothing else.
- Pointing: the share of answers about a thing for which the patch with the largest averaged attention, where the last
  word was chosen, lies in the square around that thing. Nothing in training asked for it.
- `examples/` holds two held-out pictures, named by what they show.""",
)
