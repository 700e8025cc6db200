"""Recipe `scenes-match`: pictures of scenes and descriptions as vectors of one space, by a small CLIP."""

import math
import random
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.picture import to_pixel_values
from weft_export.console import OnProgress
from weft_export.families.clip import Clip, ClipConfig
from weft_export.families.clip_vision import ClipEmbedderConfig
from weft_export.families.text_embedder import Dense, TextEmbedderConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_proto.v1 import bundle_pb2
from weft_recipes.pictures.description import Description, coloured_shapes, describe, describe_fully, true_of
from weft_recipes.pictures.drawing import render
from weft_recipes.pictures.gallery import (
    IMAGE,
    MAX_TARGET,
    PATCH,
    PICTURE_SIDE,
    SIDE,
    draw,
    examples_of_scenes,
    normalize,
    png,
    write_examples,
)
from weft_recipes.pictures.scene import HELD_OUT_SHARE, Scene, sample
from weft_recipes.shared.base import load_base
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import PAD, word_tokenizer

SEED = 37
NUM_TRAINED, NUM_HELD_OUT, NUM_CHOICES = 8_000, 2_000, 16
BATCH, TOLD, NUM_STEPS, PEAK_LR = 64, 4, 1_200, 1e-3
"""TOLD descriptions of each picture of a batch: reading one costs little beside seeing."""
D_EMBEDDING = 64


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out combinations."""
    watch = Stopwatch()
    generator = prepare(SEED)
    rng = random.Random(SEED)  # noqa: S311 - descriptions, not secrets
    scenes = sample(NUM_TRAINED, SEED, held_out=False)
    tokenizer = word_tokenizer(["an", "and", *(word for scene in scenes for word in scene.caption.split())])
    model = begin(tokenizer)
    pictures = draw(scenes, on_progress)
    order = shuffled(NUM_TRAINED, BATCH, generator)
    owners = torch.arange(BATCH).repeat_interleave(TOLD)

    def loss_of(_: int) -> Tensor:
        chosen = next(order)
        shown = [scenes[index] for index in chosen.tolist()]
        told = [describe(scene, rng) for scene in shown for _ in range(TOLD)]
        texts = tokenized(tokenizer, [description.text for description in told])
        return contrast(model(normalize(pictures[chosen]), *texts), owners, true_of(shown, told))

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, on_progress=on_progress)
    examples = examples_of_scenes()
    save_checkpoint(out, _checkpoint(model, tokenizer, examples[-1]), torch.float16)
    write_examples(out / "examples", examples)
    figures = measure(out, NUM_HELD_OUT)
    figures |= {"parameters": sum(p.numel() for p in model.parameters()), "scenes trained on": NUM_TRAINED}
    figures |= watch.figures()
    write_card(out, CARD, figures)
    return figures


def begin(tokenizer: Tokenizer) -> Clip:
    """Return the model before training: its pictures begin as those of the captioner `scenes`, its texts anew.

    Raises:
        ExportError: there is no such checkpoint.
    """
    captioner = load_base("scenes").model
    sizes = captioner.config
    pictures = ClipEmbedderConfig(
        channels=3,
        image_height=SIDE,
        image_width=SIDE,
        patch_size=PATCH,
        d_model=sizes.d_model,
        num_heads=sizes.num_heads,
        d_ff=sizes.d_ff,
        num_layers=sizes.num_encoder_layers,
        d_embedding=D_EMBEDDING,
        activation="gelu",
    )
    texts = TextEmbedderConfig(
        vocab_size=tokenizer.get_vocab_size(),
        max_tokens=MAX_TARGET,
        d_model=96,
        num_heads=4,
        d_ff=192,
        num_layers=2,
        embeddings=EmbeddingStyle(positions=True),
        causal=True,
        pooling="last",
        dense=(Dense(D_EMBEDDING, bias=False),),
    )
    model = Clip(ClipConfig(pictures=pictures, texts=texts))
    seen = {name.removeprefix("encoder."): weight for name, weight in captioner.state_dict().items()}
    weights = model.pictures.state_dict()
    seen["positions"] = torch.cat((weights["positions"][:1], seen["positions"]))
    model.pictures.load_state_dict(weights | {name: seen[name] for name in weights.keys() & seen.keys()})
    return model


def contrast(logits: Tensor, owners: Tensor, matches: Tensor) -> Tensor:
    """Return the paper's symmetric loss (its figure 3) of logits [pictures, texts], the mean over the texts.

    owners int64 [texts] are the pictures that texts were told of. matches bool [pictures, texts] says what else is
    true: no wrong answer, so each text stands against the false ones of its picture, and against its false pictures.
    """
    own = logits[owners, torch.arange(len(owners))]
    false = logits.masked_fill(matches, -math.inf)
    of_texts, of_pictures = false.logsumexp(dim=1)[owners], false.logsumexp(dim=0)
    # softplus(b - a) is -log(e^a / (e^a + e^b)).
    return (functional.softplus(of_texts - own) + functional.softplus(of_pictures - own)).mean() / 2


def tokenized(tokenizer: Tokenizer, texts: list[str]) -> tuple[Tensor, Tensor]:
    """Return token ids int64 [texts, longest], padded, and their lengths int32 [texts]."""
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    return pad(rows, PAD), torch.tensor([*map(len, rows)], dtype=torch.int32)


@torch.no_grad()
def cosines(model: Clip, tokenizer: Tokenizer, scenes: list[Scene], texts: list[str]) -> Tensor:
    """Return the cosines [scenes, texts] of texts and of pictures as people see them, resized as a server would."""
    pixels = [torch.from_numpy(to_pixel_values(render(scene, PICTURE_SIDE), IMAGE)) for scene in scenes]
    pictures = torch.cat([model.pictures(torch.stack(pixels[at : at + 100])) for at in range(0, len(pixels), 100)])
    vectors: Tensor = model.texts(*tokenized(tokenizer, texts))
    return pictures @ vectors.t()


def measure(directory: Path, count: int) -> Figures:
    """Measure a stored checkpoint on `count` scenes whose combinations it was never trained on.

    Of scenes with one caption the last is kept, so that one text alone is right.
    """
    checkpoint = load_checkpoint(directory)
    assert isinstance(checkpoint.model, Clip)
    tokenizer = Tokenizer.from_str(checkpoint.files["words.json"].decode())
    scenes = list({scene.caption: scene for scene in sample(count, SEED + 2, held_out=True)}.values())
    full = [describe_fully(scene) for scene in scenes]
    between = cosines(checkpoint.model, tokenizer, scenes, [description.text for description in full])
    lone = [scene for scene in scenes if len(scene.things) == 1]
    kinds = coloured_shapes()
    named = cosines(checkpoint.model, tokenizer, lone, [kind.text for kind in kinds])
    return {
        f"right caption among {NUM_CHOICES}, zero-shot": _chosen(between),
        f"right one of {len(kinds)} coloured shapes alone, zero-shot": _right(named, lone, kinds),
        f"first text for a picture, of {len(scenes)}": _among(between, 1),
        f"first picture for a text, of {len(scenes)}": _among(between.t(), 1),
        "among the first five texts": _among(between, 5),
        "among the first five pictures": _among(between.t(), 5),
        "which of two things is where: right one of two texts": _ordered(checkpoint.model, tokenizer, scenes),
        "held-out scenes": len(scenes),
        "of them with one thing": len(lone),
    }


def _chosen(between: Tensor) -> float:
    """Return the share of pictures nearer to their own text than to others', drawn, of NUM_CHOICES in all."""
    rng = random.Random(SEED)  # noqa: S311 - choices, not secrets
    right = 0
    for index, row in enumerate(between):
        others = [other for other in rng.sample(range(len(row)), NUM_CHOICES) if other != index]
        right += bool(row[index] > row[others[: NUM_CHOICES - 1]].max())
    return right / len(between)


def _right(between: Tensor, scenes: list[Scene], descriptions: list[Description]) -> float:
    """Return the share of scenes whose nearest description is true of them."""
    nearest = between.argmax(dim=1, keepdim=True)
    return float(true_of(scenes, descriptions).gather(1, nearest).float().mean())


def _ordered(model: Clip, tokenizer: Tokenizer, scenes: list[Scene]) -> float:
    """Return the share of pairs that are nearer to their caption than to one in which both have changed places."""
    pairs = [scene for scene in scenes if len({thing.words for thing in scene.things}) == 2]
    turned = [replace(scene, things=scene.things[::-1]) for scene in pairs]
    between = cosines(model, tokenizer, pairs, [scene.caption for scene in (*pairs, *turned)])
    return float((between.diagonal() > between.diagonal(len(pairs))).float().mean())


def _among(between: Tensor, count: int) -> float:
    """Return the share of rows whose own column is among the `count` nearest."""
    own = torch.arange(len(between))[:, None]
    return float((between.topk(count, dim=1).indices == own).any(dim=1).float().mean())


def _checkpoint(model: Clip, tokenizer: Tokenizer, golden: Scene) -> Checkpoint:
    (thing,) = golden.things
    labels = [f"a {color} {thing.shape}" for color in sorted({thing.color, "black", "green"})]
    return Checkpoint(
        family="clip",
        description="Pictures of drawn scenes and their descriptions in one space",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png", labels=labels),
        text=bundle_pb2.TextSpec(
            source_tokenizer="words.json",
            source_vocab_size=tokenizer.get_vocab_size(),
            pad_id=PAD,
            max_source_tokens=MAX_TARGET,
        ),
        image=IMAGE,
        label_text="{}",
        files={"words.json": tokenizer.to_str().encode(), "golden.png": png(golden)},
    )


CARD = Card(
    name="scenes-match",
    title="which text fits a drawn scene",
    summary="Gives pictures of one or two coloured shapes and descriptions of them vectors of one space.\nSo it"
    " tells which label of a request fits a picture (zero-shot): `a red circle` or `a blue square`.",
    data=f"""The scenes of `scenes`. Each time a picture is shown, it is described anew
(`weft_recipes/pictures/description.py`): all things are named, but sizes and where things stand may be left out. One
combination of coloured shapes in {HELD_OUT_SHARE} (by a hash), and of a lone coloured shape and its place, occurs in no
training picture; the held-out figures are of these combinations only, each with its full caption, drawn at
{PICTURE_SIDE} x {PICTURE_SIDE} pixels and resized as a server would.""",
    model=f"""CLIP (Radford et al. 2021). Pictures: 3 layers over {PATCH} x {PATCH} patches of {SIDE} x {SIDE} pixels,
width 128, read at a class token. Texts: 2 causal layers, width 96, read at the end; each word is one token. 4 heads,
pre-norm, vectors of {D_EMBEDDING} numbers; trained in float32, stored in float16. Pictures begin with the weights of
`scenes`, texts with none; then {NUM_STEPS:,} batches of {BATCH} pictures, each with {TOLD} texts, train all of it. A
text that is true of another picture of its batch too is no wrong answer there.""",
    notes="""- It does not know which of two things is above or left of the other: between a caption and the same one
  with its things exchanged it chooses as if by lot. Larger models of its kind are known to read bags of words, too
  (Yuksekgonul et al. 2023). Of the captions that were nearest and wrong, 40 % name the same things.
- It knows these scenes and their words, and nothing else. A text must name all things of a picture.
- `examples/` holds three held-out pictures, named by their captions.""",
)
