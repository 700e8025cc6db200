"""Random requests to a model, and what it answers to each alone, or to all in a crowd."""

import asyncio
import random
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from weft_proto.ctc import least_samples
from weft_proto.questions import picture_places
from weft_proto.sight import sees
from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.loading.build import build_model
from weft_server.preprocessing.log_mel import Span, sound_of
from weft_server.preprocessing.waveform import Waveforms
from weft_server.requests.pictured_ids import PicturedIds, SeenPicture, offsets_of
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Decoding, Sequence
from weft_server.source import AskedPixels, Cells, Ids, Masked, Pixels, Source
from weft_server.telemetry.metrics import Metrics


@dataclass
class Request:
    """One request: what it brings and wants."""

    source: Source
    decoding: Decoding | None
    wants_tokens: bool
    wants_scores: bool
    explain: common_pb2.Explain | None
    # Pictures in its prompt, and where each begins.
    pictures: tuple[tuple[int, Pixels], ...] = ()


def requests_for(manifest, count, seed):
    """Random requests: any length, any token, any number of new tokens, sampled, streaming, explained or not."""
    rng, text, image = np.random.default_rng(seed), manifest.text, manifest.image
    asked = []
    for index in range(count):
        # Of a model that matches, texts and pictures take turns.
        pictures = ()
        if sees(manifest):
            source, pictures = pictured(manifest, rng, index % 3)
        elif manifest.HasField("image") and not (index % 2 and manifest.HasField("matching")):
            pixels = rng.normal(0, 1, (image.channels, image.height, image.width)).astype(np.float32)
            asks = question(text, rng) if TASKS[manifest.task].takes_question else ()
            source = AskedPixels(pixels, (image.grid_rows, image.grid_columns), image.num_class_tokens, asks)
        elif manifest.HasField("audio"):
            source = recording(manifest, rng)
        else:
            longest = text.max_source_tokens or text.max_total_tokens * 3 // 4
            source = text_of(manifest, rng, longest)
        decoding = None
        if manifest.states:
            room = text.max_new_tokens
            if not text.HasField("start_id"):
                room = min(room, text.max_total_tokens - source.num_tokens)
            max_new = int(rng.integers(1, min(room, 48) + 1))
            sampling = Sampling(float(rng.choice([0.7, 1.0, 1.5])), int(rng.choice([0, 5])), 0.95, index)
            decoding = Decoding(max_new, int(rng.integers(0, max_new + 1)), (), sampling if index % 2 else None)
        explain = random_explain(manifest.attention.heads, rng) if index % 4 == 0 else None
        asked.append(Request(source, decoding, bool(rng.random() < 0.3), bool(rng.random() < 0.3), explain, pictures))
    return asked


def recording(manifest, rng):
    """A recording as a graph reads it: a waveform of one of four lengths, or the features of a window."""
    if TASKS[manifest.task].labels_frames or manifest.audio.min_samples:
        lengths = [max(40, least_samples(manifest.audio)), 1200, 1999, 2000]
        samples = rng.normal(0, 1, int(rng.choice(lengths))).astype(np.float32)
        return Waveforms(manifest.audio).source(samples, Span(0, len(samples)))
    shape = (manifest.audio.num_mels, manifest.audio.num_frames)
    return sound_of(rng.normal(0, 1, shape).astype(np.float32), manifest.audio)


def text_of(manifest, rng, longest):
    """A text of any length; if it is one with masks, any few of its places are."""
    ids = rng.integers(0, manifest.text.source_vocab_size, rng.integers(1, longest + 1))
    if not TASKS[manifest.task].fills_masks:
        return Ids(ids)
    return Masked(ids, np.sort(rng.choice(len(ids), rng.integers(1, min(len(ids), 3) + 1), replace=False)))


def pictured(manifest, rng, count):
    """A prompt with so many pictures at any of its places, and where they are."""
    text, shown = manifest.text, [random_picture(manifest.image, rng) for _ in range(count)]
    most = text.max_total_tokens * 3 // 4 - sum(places for _, places in shown)
    ids = rng.integers(0, text.source_vocab_size, rng.integers(1, most + 1))
    pictures, taken = [], 0
    for (picture, places), before in zip(shown, np.sort(rng.integers(0, len(ids) + 1, count)), strict=True):
        pictures.append((int(before) + taken, picture))
        taken += places
    for (start, _), (_, places) in zip(pictures, shown, strict=True):
        ids = np.insert(ids, start, [text.image_id] * places)
    return Ids(ids), tuple(pictures)


def random_picture(image, rng):
    """A picture as an encoder reads it, and how many places it takes. Of cells, it has few, in any shape."""
    cells = tuple(rng.integers(1, 6, 2).tolist()) if image.tiling.max_pixels else ()
    pixels = rng.normal(0, 1, (*cells, image.channels, image.height, image.width)).astype(np.float32)
    if cells:
        return Cells(pixels, cells), cells[0] * cells[1]
    grid = image.grid_rows, image.grid_columns
    return Pixels(pixels, grid, image.num_class_tokens), picture_places(image)


async def seen(model, request):
    """What the decoder reads of a request: with features of its pictures, as the model's own engine makes them."""
    if not request.pictures:
        return request.source
    sequences = [Sequence("picture", pixels, None) for _, pixels in request.pictures]
    for sequence in sequences:
        model.sight.submit(sequence, is_promised=True)
    found = []
    for (start, pixels), sequence in zip(request.pictures, sequences, strict=True):
        await sequence.reply.done()
        cells = pixels.grid if isinstance(pixels, Cells) else None
        found.append(SeenPicture(start, sha256(pixels.array).digest(), sequence.reply.values, cells=cells))
    ids, place_id = request.source.array, model.manifest.text.source_vocab_size
    return PicturedIds(ids, tuple(found), place_id, request.source, offsets_of(len(ids), found))


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


async def answers_of(directory, asked, order, *, crowd, adapters=(None,)):
    """What a model answers to `asked`, submitted in `order`: all at once at 32 slots, or each alone on one slot.

    They have `adapters` in turn.
    """
    config = read_config(repository=directory, slots=32 if crowd else 1, lanes=2 if crowd else 1, threads=1)
    bundle = load_bundle(directory)
    model = build_model(bundle, config, Metrics().for_model("m", 1, "t"), asyncio.get_running_loop())
    await model.start()
    answers = {}

    async def ask(index):
        request = asked[index]
        model.engine.reserve()
        wants = {"wants_tokens": request.wants_tokens, "wants_scores": request.wants_scores}
        prefix_ids, adapter = request.source.asked_ids, adapters[index % len(adapters)]
        source = await seen(model, request)
        sequence = Sequence(str(index), source, request.decoding, prefix_ids, adapter=adapter, **wants)
        model.engine.submit(sequence)
        await sequence.reply.done()
        reply = sequence.reply
        # Who wants no scores has whatever the run had: another row's caller may have asked.
        answer = [reply.token_ids, reply.log_probs if request.wants_scores else None]
        rows = len(reply.token_ids)
        if request.decoding is None:
            # What a vector was read from is one row, also where tokens have vectors beside it.
            rows = 1 if model.manifest.HasField("embedding") else len(np.atleast_2d(reply.values))
            answer.append(reply.values.tobytes())
        if request.explain is not None:
            reading = model.explainer.resolve(request.explain)

            def explain():
                return model.explainer.explain(request.source, reply.token_ids, reading, prefix_ids, adapter)

            weights, source_mass, asked_about = await model.explainer.work(explain)
            assert (rows, request.source.num_shown) == weights.shape
            assert (rows,) == source_mass.shape
            assert np.abs(weights.sum(axis=1) - 1).max() < 1e-5
            assert -1e-5 < source_mass.min() <= source_mass.max() < 1 + 1e-5
            answer += [weights.tobytes(), source_mass.tobytes()]
            assert bool(prefix_ids) == (asked_about is not None)
            if asked_about is not None:
                assert (rows, len(prefix_ids)) == asked_about.weights.shape
                answer += [each.tobytes() for each in asked_about]
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
