"""Whole models on a device, or on the CPU as if its memory were far away: what they answer to random requests."""

import numpy as np

from crowd import recording, text_of
from loaded import Loaded
from weft_proto.tasks import TASKS
from weft_server.loading import build
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding, Sequence
from weft_server.source import AskedPixels


async def answers_of(directory, device, monkeypatch, count=40):
    """What a whole model on a device answers to `count` random requests at once: greedy, sampled and searched ones."""
    monkeypatch.setattr(build, "devices_of", lambda _: [device])
    rng = np.random.default_rng(5)
    async with Loaded(directory, slots=13, lanes=1, threads=1) as model:
        text, image = model.manifest.text, model.manifest.image
        sequences = []
        for index in range(count):
            # Of a model that matches, texts and pictures take turns.
            # Prompts that may hold pictures are asked without.
            if TASKS[model.manifest.task].takes_image and not (index % 2 and model.manifest.HasField("matching")):
                pixels = rng.normal(0, 1, (image.channels, image.height, image.width)).astype(np.float32)
                most = text.max_source_tokens if TASKS[model.manifest.task].takes_question else 0
                question = tuple(rng.integers(0, text.source_vocab_size, index % (most + 1)).tolist())
                source = AskedPixels(pixels, (image.grid_rows, image.grid_columns), image.num_class_tokens, question)
            elif model.manifest.HasField("audio"):
                source = recording(model.manifest, rng)
            else:
                longest = text.max_source_tokens or text.max_total_tokens * 3 // 4
                source = text_of(model.manifest, rng, longest)
            room = text.max_new_tokens if text.HasField("start_id") else text.max_total_tokens - source.num_tokens
            max_new = int(rng.integers(1, min(room, 24) + 1)) if model.manifest.states else 0
            # So hot that the candidates rarely decide, and rows of logits are fetched.
            sampling = Sampling(50.0, 0, 1.0, index) if index % 2 else None
            beams = Beams(1 + index % 4) if index % 3 == 0 else None
            sampling = None if beams else sampling
            decoding = Decoding(max_new, max_new // 2, (), sampling, beams=beams) if max_new else None
            model.engine.reserve()
            sequence = Sequence(str(index), source, decoding, source.asked_ids, wants_scores=True)
            model.engine.submit(sequence)
            sequences.append(sequence)
        for sequence in sequences:
            await sequence.reply.done()
    replies = [sequence.reply for sequence in sequences]
    writes = bool(model.manifest.states)
    return [(r.token_ids, r.log_probs, r.outputs, None if writes else r.values.tobytes()) for r in replies]
