"""Batch invariance, the sacred law: a request's answer is bit-identical alone and in any crowd."""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tiny import CHECKPOINTS, INT4, INT8, export_tiny

from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.content.windows import sound_of
from weft_server.sequence import Decoding, Sampling, Sequence
from weft_server.serving.build import build_model
from weft_server.source import Asked, Ids, Source
from weft_server.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
TRAINED = sorted(path.parent.name for path in ROOT.glob("export/checkpoints/*/config.json"))


@dataclass
class Request:
    """One request: what it brings and wants."""

    source: Source
    decoding: Decoding | None
    wants_tokens: bool
    wants_scores: bool
    explain: common_pb2.Explain | None


def requests_for(manifest, count, seed):
    """Random requests: any length, any token, any number of new tokens, sampled, streaming, explained or not."""
    rng, text, image = np.random.default_rng(seed), manifest.text, manifest.image
    asked = []
    for index in range(count):
        # Of a model that matches, texts and pictures take turns.
        if manifest.HasField("image") and not (index % 2 and manifest.HasField("matching")):
            pixels = rng.normal(0, 1, (image.channels, image.height, image.width)).astype(np.float32)
            asks = question(text, rng) if TASKS[manifest.task].takes_question else ()
            source = Asked(pixels, (image.grid_rows, image.grid_columns), image.num_class_tokens, asks)
        elif manifest.HasField("audio"):
            shape = (manifest.audio.num_mels, manifest.audio.num_frames)
            source = sound_of(rng.normal(0, 1, shape).astype(np.float32), manifest.audio)
        else:
            longest = text.max_source_tokens or text.max_total_tokens * 3 // 4
            source = Ids(rng.integers(0, text.source_vocab_size, rng.integers(1, longest + 1)))
        decoding = None
        if manifest.states:
            room = text.max_new_tokens if text.HasField("start_id") else text.max_total_tokens - source.num_tokens
            max_new = int(rng.integers(1, min(room, 48) + 1))
            sampling = Sampling(float(rng.choice([0.7, 1.0, 1.5])), int(rng.choice([0, 5])), 0.95, index)
            decoding = Decoding(max_new, int(rng.integers(0, max_new + 1)), (), sampling if index % 2 else None)
        explain = random_explain(manifest.attention.heads, rng) if index % 4 == 0 else None
        asked.append(Request(source, decoding, bool(rng.random() < 0.3), bool(rng.random() < 0.3), explain))
    return asked


def question(text, rng):
    """A question of any length."""
    length = rng.integers(1, text.max_source_tokens + 1)
    return tuple(rng.integers(0, text.source_vocab_size, length).tolist())


def random_explain(heads, rng):
    """The model's default, a layer, or one head of it; None for a model that cannot explain."""
    if not heads:
        return None
    layer = int(rng.integers(len(heads)))
    choices = [{}, {"layer": layer}, {"layer": layer, "head": int(rng.integers(heads[layer]))}]
    return common_pb2.Explain(**choices[rng.integers(3)])


async def answers_of(directory, asked, order, *, crowd):
    """What a model answers to `asked`, submitted in `order`: all at once at 32 slots, or each alone on one slot."""
    config = read_config(repository=directory, slots=32 if crowd else 1, lanes=2 if crowd else 1, threads=1)
    bundle = load_bundle(directory)
    model = build_model(bundle, config, Metrics().for_model("m", 1, "t"), asyncio.get_running_loop())
    await model.start()
    answers = {}

    async def ask(index):
        request = asked[index]
        model.engine.reserve()
        wants = {"wants_tokens": request.wants_tokens, "wants_scores": request.wants_scores}
        prefix_ids = request.source.asked_ids
        sequence = Sequence(str(index), request.source, request.decoding, prefix_ids, **wants)
        model.engine.submit(sequence)
        await sequence.reply.done()
        reply = sequence.reply
        # Who wants no scores has whatever the run had: another row's caller may have asked.
        answer = [reply.token_ids, reply.log_probs if request.wants_scores else None]
        rows = len(reply.token_ids)
        if request.decoding is None:
            rows = len(np.atleast_2d(reply.values))
            answer.append(reply.values.tobytes())
        if request.explain is not None:
            reading = model.explainer.resolve(request.explain)

            def explain(_):
                return model.explainer.explain(request.source, reply.token_ids, reading, prefix_ids)

            weights, source_mass = await model.work(explain)
            assert (rows, request.source.num_shown) == weights.shape
            assert (rows,) == source_mass.shape
            assert np.abs(weights.sum(axis=1) - 1).max() < 1e-5
            assert -1e-5 < source_mass.min() <= source_mass.max() < 1 + 1e-5
            answer += [weights.tobytes(), source_mass.tobytes()]
        answers[index] = answer

    if crowd:
        rng = random.Random(len(asked))
        tasks = []
        for index in order:
            tasks.append(asyncio.create_task(ask(index)))
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() * 0.003)
        await asyncio.gather(*tasks)
    else:
        for index in order:
            await ask(index)
    assert await asyncio.to_thread(model.stop, 30)
    return answers


def check(directory, count):
    """Compare a crowd in random order with one at a time."""
    asked = requests_for(load_bundle(directory).manifest, count, seed=11)
    order = random.Random(12).sample(range(count), count)

    crowded = asyncio.run(answers_of(directory, asked, order, crowd=True))
    alone = asyncio.run(answers_of(directory, asked, range(count), crowd=False))

    different = [index for index in range(count) if alone[index] != crowded[index]]
    assert [] == different


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_tiny_models_answer_the_same_alone_and_crowded(tiny_repository, name):
    """Random weights, every family: tokens, scores, probabilities and alignments are bit-identical."""
    check(tiny_repository / name / "1", 200)


@pytest.mark.slow
@pytest.mark.parametrize("name", INT8)
def test_int8_models_answer_the_same_alone_and_crowded(int8_repository, name):
    """At int8 as at fp32: tokens, scores, probabilities and alignments are bit-identical."""
    check(int8_repository / f"{name}-int8" / "1", 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", INT4)
def test_int4_models_answer_the_same_alone_and_crowded(int4_repository, name):
    """With weights in blocks too."""
    check(int4_repository / f"{name}-int4" / "1", 60)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["int4", "int8-weights", "nf4"])
@pytest.mark.parametrize("name", INT8)
def test_weights_in_blocks_for_every_kind_of_product(name, precision, tmp_path):
    """A model is exported with all its graphs, passes parity, and answers the same alone and crowded."""
    export_tiny(tmp_path, tmp_path / "models", name, precision)
    check(tmp_path / "models" / f"{name}-{precision}" / "1", 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models_answer_the_same_alone_and_crowded(name):
    """Trained weights: tokens, scores, probabilities and alignments are bit-identical."""
    found = [ROOT / "build" / folder / name / "1" for folder in ("models", "families")]
    directory = next((path for path in found if path.is_dir()), None)
    assert directory, "run `make models families` first"
    check(directory, 200 if directory.parts[-3] == "models" else 50)
