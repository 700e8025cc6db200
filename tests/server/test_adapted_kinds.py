"""The laws of adapters, for every kind of model that takes them: the same bits in any company, or the base's own."""

import asyncio
import random

import pytest
from samples import sample
from tiny import CHECKPOINTS, MIXED, save_tiny
from tiny_adapters import write_adapter

from crowd import answers_of, requests_for
from weft_export.adapters.export_adapter import export_adapter
from weft_export.errors import ExportError
from weft_export.export import as_asked, export_checkpoint
from weft_export.options import ExportOptions
from weft_server.bundle.adapter import load_adapter
from weft_server.bundle.load import load_bundle

RANK = 3
# One that reads prompts in decode runs, and one that runs whole batches. CI has the latter.
QUICK = {"tiny-gpt", "tiny-tags"}


def shapes_of(name):
    """By path the shapes of the weights of a model that take adapters. None: it takes none."""
    try:
        spec = as_asked(sample(name), ExportOptions(adapters=RANK)).adapters
    except ExportError:
        return None
    return {layer.name: (layer.outputs, layer.inputs) for layer in spec.layers}


NAMES = [name for name in CHECKPOINTS if shapes_of(name)]


def test_most_kinds_take_adapters():
    """All with the layers of a Transformer, and none that recurs, or matches, or has windows."""
    assert len(NAMES) > 14
    some = {"tiny-caption", "tiny-embed", "tiny-extract", "tiny-image", "tiny-masks", "tiny-speech", "tiny-t5"}
    assert some | QUICK <= set(NAMES)
    assert not {"tiny-rnn", "tiny-match", "tiny-swin"} & set(NAMES)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(pytest.param(each, 30, marks=pytest.mark.slow) for each in sorted(QUICK)),
        *(pytest.param(each, 60, marks=pytest.mark.long) for each in NAMES),
    ],
)
def test_answers_are_the_same_in_any_company(name, count, tmp_path, tiny_repository):
    """Tokens, scores, vectors, probabilities and alignments: with an adapter those that it has alone, or the base's."""
    checkpoint, bundle = save_tiny(name, tmp_path / "checkpoint"), tmp_path / "models" / name / "1"
    export_checkpoint(checkpoint, bundle, ExportOptions(adapters=RANK, mixed_runs=name in MIXED["fp32"]))
    loaded, adapters = load_bundle(bundle), [None]
    for seed, (own, rank) in enumerate((("formal", RANK), ("short", 1))):
        # As strong as each other: one that is stronger makes keys so large that float32 differs from itself.
        made = write_adapter(tmp_path / own, shapes_of(name), rank=rank, seed=seed, lora_alpha=2 * rank)
        adapters.append(load_adapter(export_adapter(made, bundle, checkpoint).directory, loaded)[0])

    asked = requests_for(loaded.manifest, count, seed=11)
    order = random.Random(12).sample(range(count), count)
    crowded = asyncio.run(answers_of(bundle, asked, order, crowd=True, adapters=adapters))
    alone = asyncio.run(answers_of(bundle, asked, range(count), crowd=False, adapters=adapters))
    base = asyncio.run(answers_of(tiny_repository / name / "1", asked, range(count), crowd=False))
    assert [] == [index for index in range(count) if alone[index] != crowded[index]]
    adapted = [index for index in range(count) if index % len(adapters)]
    assert [] == [index for index in range(count) if index not in adapted and alone[index] != base[index]]
    assert len(adapted) / 2 < sum(alone[index] != base[index] for index in adapted)
