"""Recipe `scenes-chat`: a conversation about photographed scenes, by a small LLaVA that begins from nothing."""

import random
from functools import partial
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.picture import to_pixel_values
from weft_export.console import OnProgress
from weft_export.families.llava import Llava, LlavaConfig, SightConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.positions import Rope
from weft_export.layers.style import Style
from weft_proto.v1 import bundle_pb2
from weft_recipes.pictures.gallery import (
    GRID,
    IMAGE,
    PATCH,
    PICTURE_SIDE,
    SIDE,
    draw,
    normalize,
    png,
    write_named_by_things,
)
from weft_recipes.pictures.photograph import photograph
from weft_recipes.pictures.questions import CROWDED_SHARE, Question, ask, sample_scenes
from weft_recipes.pictures.scene import HELD_OUT_SHARE, Scene
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import END, PAD, SPECIAL, START, word_tokenizer

SEED = 67
NUM_TRAINED, NUM_HELD_OUT = 20_000, 500
BATCH, NUM_TURNS = 48, 6
LESSONS = ((1_400, 2e-3, 6e-3), (1_800, 1e-3, 4e-3))
"""Of each the steps, and the peak rates of AdamW and of Muon."""
MAX_TOKENS, MAX_ANSWER = 256, 24
LOOK = "what do you see?"
DESCRIBED_SHARE = 0.5
"""How many conversations begin with LOOK."""
IMAGE_TOKEN, USER, ASSISTANT = "<image>", "<user>", "<assistant>"
TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] not in ('user', 'assistant') -%}
{{- raise_exception('I know two roles: user and assistant.') -}}
{%- endif -%}
{{- '<' ~ message['role'] ~ '>' -}}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for part in message['content'] -%}
{{- '<image>' if part['type'] == 'image' else part['text'] -}}
{%- endfor -%}
{%- endif -%}
{%- if message['role'] == 'assistant' -%}{{- eos_token -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<assistant>' -}}{%- endif -%}"""
IGNORED = -100


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out combinations."""
    watch = Stopwatch()
    generator = prepare(SEED)
    rng = random.Random(SEED)  # noqa: S311 - questions, not secrets
    scenes = sample_scenes(NUM_TRAINED, SEED, held_out=False)
    tokenizer = tokenizer_of(scenes)
    model = Llava(_config(tokenizer.get_vocab_size()))
    pictures = draw(scenes, on_progress, photograph)
    order = shuffled(NUM_TRAINED, BATCH, generator)

    def loss_of(_: int) -> Tensor:
        chosen = next(order)
        rows = [tokenized(tokenizer, converse(scenes[index], rng)) for index in chosen.tolist()]
        ids = pad([row[:-1] for row, _ in rows], PAD)
        labels = pad([told[1:] for _, told in rows], IGNORED)
        logits = model.decode(ids, normalize(pictures[chosen]))
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)

    for num_steps, peak_lr, muon_lr in LESSONS:
        fit(model, loss_of, num_steps=num_steps, peak_lr=peak_lr, muon_lr=muon_lr, on_progress=on_progress)
    shown = sample_scenes(200, SEED + 1, held_out=False)
    layer = max(range(model.config.num_layers), key=partial(measure_pointing, model, tokenizer, shown))
    shown_to_people = examples()
    save_checkpoint(out, _checkpoint(model, tokenizer, layer, shown_to_people[0]))
    write_named_by_things(out / "examples", shown_to_people, photograph)
    figures = measure(out, NUM_HELD_OUT)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures["photographs trained on"] = NUM_TRAINED
    figures |= watch.figures()
    write_card(out, CARD, figures)
    return figures


def tokenizer_of(scenes: list[Scene]) -> Tokenizer:
    """Return a tokenizer of the words of conversations about scenes, and of who speaks."""
    rng = random.Random(SEED)  # noqa: S311 - questions, not secrets
    said = [question for scene in scenes for question in converse(scene, rng)]
    texts = [text for question in said for text in (question.text.replace("?", " ?"), question.answer)]
    tokenizer = word_tokenizer(word for text in texts for word in text.split())
    tokenizer.add_special_tokens([AddedToken(each, special=True) for each in (IMAGE_TOKEN, USER, ASSISTANT)])
    return tokenizer


def _config(vocab_size: int) -> LlavaConfig:
    return LlavaConfig(
        vocab_size=vocab_size,
        max_tokens=MAX_TOKENS,
        d_model=128,
        num_heads=4,
        num_kv_heads=2,
        d_ff=224,
        num_layers=3,
        style=Style(rms_norm=True, activation="silu", gated=True, bias=False),
        embeddings=EmbeddingStyle(tied=True),
        rotations=(Rope(tuple(10_000.0 ** (-pair / 16) for pair in range(16))),),
        sight=SightConfig(
            channels=3,
            image_height=SIDE,
            image_width=SIDE,
            patch_size=PATCH,
            d_model=128,
            num_heads=4,
            d_ff=256,
            num_layers=3,
            feature_layers=(3,),
            activation="gelu",
        ),
    )


def describe(scene: Scene) -> Question:
    """Ask for all that there is. Things of a crowd are told from left to right."""
    if len(scene.things) <= 2:
        return Question(LOOK, scene.caption)
    crowd = sorted(scene.things, key=lambda thing: thing.x)
    return Question(LOOK, " and ".join(thing.words for thing in crowd))


def converse(scene: Scene, rng: random.Random) -> list[Question]:
    """Draw the turns of a conversation about a scene."""
    turns = [ask(scene, rng) for _ in range(NUM_TURNS)]
    return [describe(scene), *turns[1:]] if rng.random() < DESCRIBED_SHARE else turns


def tokenized(tokenizer: Tokenizer, turns: list[Question]) -> tuple[list[int], list[int]]:
    """Return all tokens of a conversation, and the same with IGNORED for each that the assistant does not say.

    The picture stands before the first question: a place of it has the id that is no token.
    """
    size = tokenizer.get_vocab_size()
    words = tokenizer.get_vocab()
    user, assistant = words[USER], words[ASSISTANT]
    ids, told = [START, user, *[size] * GRID * GRID], [IGNORED] * (2 + GRID * GRID)
    for index, turn in enumerate(turns):
        asked = [*([user] if index else []), *_ids(tokenizer, turn.text), assistant]
        said = [*_ids(tokenizer, turn.answer), END]
        ids += asked + said
        told += [IGNORED] * len(asked) + said
    return ids, told


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@torch.no_grad()
def answer(model: Llava, tokenizer: Tokenizer, pixels: Tensor, turns: list[Question], question: str) -> str:
    """Answer the next question about a picture, pixel_values [1, 3, SIDE, SIDE], greedily."""
    given, _ = tokenized(tokenizer, [*turns, Question(question, "")])
    ids = torch.tensor([given[:-1]])
    num_given = ids.shape[1]
    while ids.shape[1] < num_given + MAX_ANSWER:
        following = model.decode(ids, pixels)[:, -1].argmax(dim=-1)
        if int(following) == END:
            break
        ids = torch.cat((ids, following[:, None]), dim=1)
    return tokenizer.decode(ids[0, num_given:].tolist())


def measure(directory: Path, count: int) -> Figures:
    """Measure a stored checkpoint on conversations about large photographs of combinations that it never saw."""
    checkpoint = load_checkpoint(directory)
    model, tokenizer = checkpoint.model, Tokenizer.from_str(checkpoint.files["words.json"].decode())
    assert isinstance(model, Llava)
    rng = random.Random(SEED + 2)  # noqa: S311 - questions, not secrets
    hits: dict[str, list[bool]] = {"first questions": [], "third questions": [], "descriptions": []}
    scenes = sample_scenes(count, SEED + 2, held_out=True)
    for scene in scenes:
        pixels = _pixels(scene, PICTURE_SIDE)
        turns = [ask(scene, rng) for _ in range(3)]
        for name, before, asked in (
            ("first questions", [], turns[0]),
            ("third questions", turns[:2], turns[2]),
            ("descriptions", [], describe(scene)),
        ):
            hits[name].append(answer(model, tokenizer, pixels, before, asked.text) == asked.answer)
    figures: Figures = {f"exact match on held-out combinations: {name}": sum(of) / count for name, of in hits.items()}
    figures["held-out photographs"] = count
    pointing = measure_pointing(model, tokenizer, scenes[:300], checkpoint.explained_layer)
    return figures | {f"pointing (layer {checkpoint.explained_layer})": pointing}


@torch.no_grad()
def measure_pointing(model: Llava, tokenizer: Tokenizer, scenes: list[Scene], layer: int) -> float:
    """Return the share of answers about a thing whose last word looks most at a patch in the square around it.

    Of the patches: the rest of a word's attention lies on the question.
    """
    rng, chosen = random.Random(SEED), torch.tensor([layer])  # noqa: S311 - questions, not secrets
    hits = total = 0
    for scene in scenes:
        question = ask(scene, rng)
        if question.about is None:
            continue
        row, told = tokenized(tokenizer, [question])
        num_given = told.count(IGNORED)
        prompt = torch.tensor([row[:num_given]])
        features = model.placed(prompt, model.see(_pixels(scene, SIDE)))
        # What a word is chosen from is read at the token before it: of the last word, the third from the end.
        said = torch.tensor([row[num_given:-2]], dtype=torch.long)
        weights, *_ = model.explain(chosen, torch.tensor([-1]), said, prompt, torch.tensor([num_given]), features)
        down, across = divmod(int(weights[-1, 2 : 2 + GRID * GRID].argmax()), GRID)
        x, y = (across + 0.5) / GRID, (down + 0.5) / GRID
        reach = question.about.radius + 0.5 / GRID
        hits += abs(x - question.about.x) <= reach and abs(y - question.about.y) <= reach
        total += 1
    return hits / total


def _pixels(scene: Scene, side: int) -> Tensor:
    return torch.from_numpy(to_pixel_values(photograph(scene, side), IMAGE))[None]


def examples() -> list[Scene]:
    """Return held-out scenes worth showing: a thing beside another, one inside another, and a crowd."""
    scenes = sample_scenes(100, SEED + 3, held_out=True)
    tests = (
        lambda scene: scene.relation in ("to the left of", "to the right of"),
        lambda scene: scene.relation == "inside",
        lambda scene: len(scene.things) > 2,
    )
    return [next(filter(test, scenes)) for test in tests]


def _checkpoint(model: Llava, tokenizer: Tokenizer, layer: int, golden: Scene) -> Checkpoint:
    vocab_size = model.config.vocab_size
    return Checkpoint(
        family="llava",
        description="A conversation about photographs of up to four coloured shapes",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png", question=LOOK),
        text=bundle_pb2.TextSpec(
            source_tokenizer="words.json",
            target_tokenizer="words.json",
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=MAX_TOKENS,
            max_new_tokens=MAX_ANSWER,
            image_id=tokenizer.token_to_id(IMAGE_TOKEN),
            chat=bundle_pb2.ChatSpec(template="chat_template.jinja", bos_token=SPECIAL[START], eos_token=SPECIAL[END]),
        ),
        image=IMAGE,
        max_new_tokens=MAX_ANSWER,
        attention_layer=layer,
        files={
            "words.json": tokenizer.to_str().encode(),
            "chat_template.jinja": TEMPLATE.encode(),
            "golden.png": png(golden, photograph),
        },
    )


CARD = Card(
    name="scenes-chat",
    title="a conversation about photographs",
    summary="Sees a photograph of up to four cut-out shapes, and answers one question after the other about it:"
    " `what do you see?`, `what is left of the red circle?`, `how many stars are there?`",
    data=f"""The scenes of `scenes-answers`, and in {CROWDED_SHARE:.0%} crowds of three or four things, rendered as
photographs of cut-outs on a table (`weft_recipes/pictures/photograph.py`): a light from one side, shadows, bevelled
edges, spotted or grained ground, a lens that is not quite sharp, and noise. A conversation has {NUM_TURNS} questions,
each with exactly one right answer; every second one begins with `{LOOK}` Conversations are drawn anew each time a
photograph is shown. One combination of coloured shapes in {HELD_OUT_SHARE} (by a hash), and of a lone coloured shape
and its place, occurs in no training picture; the held-out figures are measured on these combinations only, in
photographs of {PICTURE_SIDE} x {PICTURE_SIDE} pixels, resized as a server would.""",
    model=f"""LLaVA's shape: CLIP's tower (3 layers over {GRID * GRID} patches), a projector of two layers, and a Llama
of 3 layers, which reads what the projector gives in the place of tokens. Width 128, 4 heads; float32. Each word is one
token. All of it is trained at once, from nothing, and only what the assistant says counts:
{sum(steps for steps, *_ in LESSONS):,} steps in {len(LESSONS)} lessons.""",
    notes="""- It knows these scenes and these forms of questions. Another picture gets an answer that means nothing.
- Pointing: the share of answers about a thing for which the patch with the largest averaged attention, where the last
  word was chosen, lies in the square around that thing. Nothing in training asked for it.
- `examples/` holds three held-out photographs, named by what they show.""",
)
