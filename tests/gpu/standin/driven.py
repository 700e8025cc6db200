"""A bundle's graphs, driven as the lanes drive them, with inputs and tokens that a seed draws; and what they say."""

import numpy as np
from standin import counting

from weft_proto.sound import window_samples
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.loading.lanes import Graphs, decode_lanes
from weft_server.loading.longest_inputs import text_source
from weft_server.preprocessing.log_mel import Span, sound_of
from weft_server.preprocessing.waveform import Waveforms
from weft_server.runtime.device import devices_of
from weft_server.source import AskedPixels, feeds_of
from weft_server.telemetry.metrics import Metrics

# More than rows ever run, so that batches are filled up.
NUM_SLOTS = 5
# Of three prompts or sources.
_LENGTHS = (11, 4, 9)


def drawn(manifest, rng, *, takes_image=None):
    """Three sources of a model, or of one of its two kinds."""
    text, image, audio = manifest.text, manifest.image, manifest.audio
    task = TASKS[manifest.task]
    for length in _LENGTHS:
        if task.takes_image if takes_image is None else takes_image:
            pixels = rng.normal(0, 1, (image.channels, image.height, image.width)).astype(np.float32)
            question = rng.integers(4, text.source_vocab_size, length).tolist() if task.takes_question else ()
            yield AskedPixels(pixels, (image.grid_rows, image.grid_columns), image.num_class_tokens, tuple(question))
        elif task.takes_audio and (audio.HasField("ctc") or audio.min_samples):
            samples = rng.normal(0, 1, window_samples(audio)).astype(np.float32)
            yield Waveforms(audio).source(samples, Span(0, len(samples)))
        elif task.takes_audio:
            yield sound_of(rng.normal(0, 1, (audio.num_mels, audio.num_frames)).astype(np.float32), audio)
        else:
            yield text_source(manifest, rng.integers(4, text.source_vocab_size, length))


class Writer:
    """The lane of a model that writes, on some device, and what each of its runs says."""

    def __init__(self, directory, seed=0, **settings):
        bundle = load_bundle(directory)
        config = read_config(repository=directory, slots=NUM_SLOTS, lanes=1, threads=1, **settings)
        self.manifest = bundle.manifest
        (lane,) = decode_lanes(Graphs(bundle, devices_of(config), 1), 1, config, Metrics().for_model("m", 1, "t")).ready
        self.runner, self.slots = lane.runner, lane.slots
        self.decoder = lane.runner._asking.session(reads_all=True)
        self.runner.warm()
        self._rng = np.random.default_rng(seed)
        # The best logits of each run, and all logits of those that were read whole.
        self.said, self.rows = [], []
        # What each decode run did, as standin counts it.
        self.steps = []

    def drive(self):
        """Read three sources, step together, read rows whole, let the first leave, and step again."""
        for slot, source in enumerate(drawn(self.manifest, self._rng)):
            self._begin(slot, source)
        for _ in range(3):
            self.decode(3)
        self.decode(3, reads_all=True)
        self._leave(2, 0)
        for _ in range(2):
            self.decode(2)
        return self

    def decode(self, num_rows, *, reads_all=False):
        """One step with drawn tokens."""
        slots = self.slots
        slots.num_running = num_rows
        slots.input_ids[:num_rows, 0] = self._rng.integers(4, self.manifest.text.target_vocab_size, num_rows)
        slots.reads_all[:num_rows] = reads_all
        with counting() as counts:
            candidates = self.runner.decode(num_rows)
        self.steps.append(counts)
        self.said.append(candidates.topk_logits.copy())
        if reads_all:
            self.rows.append(np.stack([candidates.logits[row].copy() for row in range(num_rows)]))
            self.said.append(candidates.logsumexp.copy())

    def _begin(self, slot, source):
        slots, task = self.slots, TASKS[self.manifest.task]
        slots.num_running = slot
        self.runner.begin(slot)
        slots.past_lengths[slot] = 0
        prompt = source.array if task.takes_prompt else np.array([self.manifest.text.start_id, *source.asked_ids])
        if not task.takes_prompt:
            slots.memory_lengths[slot] = source.num_places
            slots.past_lengths[slot] = self.runner.num_begun(source)
            self.runner.encode([source], [slot])
            prompt = prompt[:-1]
        size = self.runner.chunks.size(8)
        for first in range(0, len(prompt), size):
            _, candidates = self.runner.prefill(slot, prompt[first : first + size])
            self.said.append(candidates.topk_logits.copy())

    def _leave(self, source, target):
        self.runner.move(source, target)
        for column in (self.slots.past_lengths, self.slots.memory_lengths):
            column[target] = column[source]


def share_of_spread(one, other):
    """The largest difference of what was said, as a share of the spread of the first.

    Of the best of a row a device may say fewer than the CPU, down to one and one for each end token, or more.
    """
    width = min(one.shape[-1], other.shape[-1])
    assert width == one.shape[-1] or width > 1
    return float(np.abs(one[..., :width] - other[..., :width]).max()) / max(float(one.std()), 1e-2)


def read_whole(directory, seed=0, **settings):
    """What the graphs of a model that writes nothing make of three sources, read together and alone."""
    bundle = load_bundle(directory)
    graphs = Graphs(bundle, devices_of(read_config(repository=directory, **settings)), 1)
    rng, said = np.random.default_rng(seed), []
    for role in sorted(TASKS[bundle.manifest.task].needs):
        takes_image = None if role != bundle_pb2.GRAPH_ROLE_EMBEDDER else False
        sources = list(drawn(bundle.manifest, rng, takes_image=takes_image))
        session = graphs.open(role)
        for together in (sources, sources[:1]):
            width = max(source.bucket for source in together)
            feeds = feeds_of(together, width, bundle.manifest.text.pad_id)
            (found,) = session.run(feeds).values()
            if TASKS[bundle.manifest.task].labels_tokens:
                # What is said of padding nobody reads.
                found = np.concatenate([row[: each.num_tokens] for row, each in zip(found, together, strict=True)])
            said.append(found)
    return said
