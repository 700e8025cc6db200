"""The pieces of the first hour on a device. Each answers one question about one shape, in under ten minutes."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from bare import Bare
from beside import first_tokens
from block_steps import block_steps
from device_memory import held
from drawn import drawn_rates
from kernel_times import kernel_times, missing_profiler
from ranking import rankings
from shapes import SHAPES, bundle_of, paged_bundle_of
from starts import firsts, kernels
from steps import copy_bandwidth, measure

from weft_server.runtime.device import Device

SEED = 7


class Scale(NamedTuple):
    """How much is done: on a CUDA device, or in a rehearsal."""

    prompt: int
    num_new: int
    in_flight: tuple[int, ...]
    seconds: float
    copied_bytes: int
    asked: int
    cudnn: tuple[str, ...]


FULL = Scale(64, 64, (1, 8, 32, 128, 256), 5.0, 2**30, 20, ("1", "0"))
# The stand-in knows nothing of cuDNN's attention.
SMALL = Scale(16, 6, (1, 3), 0.1, 2**16, 2, ("0",))


def _generates(shape):
    return not shape.translates


def _any(_):
    return True


def _has_layers(shape):
    """Of layers that are one nobody else has weights."""
    return not shape.translates and not shape.shared


class Place(NamedTuple):
    """Where and how pieces are done. folder: of weights and bundles."""

    folder: object
    device: Device
    precision: str
    scale: Scale

    def bundle(self, shape):
        """The directory of a shape's bundle."""
        return bundle_of(self.folder, shape, self.precision)

    def paged_bundle(self, shape):
        """The directory of its bundle with caches in blocks, which is written if it is not there."""
        bundle = paged_bundle_of(self.folder, shape, self.precision)
        if not bundle.is_dir():
            from shape_bundles import write_paged

            write_paged(self.folder, shape, self.precision)
        return bundle

    def bare(self, shape, *, captures=False):
        """A shape's decoder with nothing around it."""
        return Bare(self.bundle(shape), 1, 1, replace(self.device, captures=captures))


class Piece(NamedTuple):
    """A question, the minutes that its answer may take on a device, and what we expect there.

    of: which shapes it is asked of.
    """

    question: str
    minutes: int
    expected: str
    run: object
    of: object = _generates


def _prompts(bare, scale, count):
    rng = np.random.default_rng(SEED)
    return list(rng.integers(4, bare.manifest.text.source_vocab_size, (count, scale.prompt)))


def _weights(place, shape):
    from shape_bundles import write

    return [{"parameters": write(place.folder, shape, place.precision)}]


def _proof(place, shape):
    from proof import agreement, parity
    from shape_bundles import checkpoint_of

    bare = place.bare(shape)
    prompts = _prompts(bare, place.scale, 32)
    model = checkpoint_of(place.folder, shape, place.precision).model
    return [parity(bare, model, prompts[:4], place.scale.num_new) | agreement(bare, prompts, place.scale.num_new)]


def _kernels(place, shape):
    return list(kernels(place.bundle(shape), place.device, settings=place.scale.cudnn))


def _blocks_kernels(place, shape):
    if place.device.kind == "cpu":
        return [{"left out": "no CPU has kernels for caches in blocks"}]
    bundle = place.paged_bundle(shape)
    return list(kernels(bundle, place.device, settings=place.scale.cudnn, paged=True))


def _memory(place, shape):
    if place.device.kind == "cpu":
        return [{"left out": "what a process takes of the host says nothing of a device"}]
    return held(place.bundle(shape), replace(place.device, captures=True), max(place.scale.in_flight))


def _plans(place, shape):
    bare = place.bare(shape)
    longest = np.resize(_prompts(bare, place.scale, 1)[0], bare.manifest.text.max_total_tokens - 1)
    return firsts(bare, longest, place.scale.in_flight)


def _steps(place, shape, *, captures=False):
    bandwidth = copy_bandwidth(place.device, place.scale.copied_bytes)
    bare = place.bare(shape, captures=captures)
    results = list(measure(bare, _prompts(bare, place.scale, 1)[0], place.scale, bandwidth))
    return [{**result, "copy_gb_per_s": round(bandwidth / 1e9, 1)} for result in results]


def _captured(place, shape):
    return _steps(place, shape, captures=True)


def _profile(place, shape):
    if why := missing_profiler():
        return [{"left out": why}]
    bare = place.bare(shape, captures=True)
    return list(kernel_times(bare, _prompts(bare, place.scale, 1)[0].tolist(), place.scale.in_flight))


def _drawn(place, shape):
    return drawn_rates(place.bundle(shape), place.device, place.scale, captures=place.device.kind != "cpu")


def _beside(place, shape):
    rows = min(32, max(place.scale.in_flight))
    return first_tokens(place.bundle(shape), place.device, place.scale, rows)


def _blocks(place, shape, *, captures=False):
    if place.device.kind == "cpu":
        return [{"left out": "no CPU has kernels for caches in blocks"}]
    rows, device = min(32, max(place.scale.in_flight)), replace(place.device, captures=captures)
    bundle = place.paged_bundle(shape)
    return [*first_tokens(bundle, device, place.scale, rows), *block_steps(bundle, device, place.scale)]


def _blocks_captured(place, shape):
    return _blocks(place, shape, captures=True)


def _ranking(place, shape):
    vocab = SHAPES[shape].vocab
    if place.device.kind == "cpu":
        return [{"left out": "no CPU ranks float16"}]
    return list(rankings(vocab, replace(place.device, captures=True), place.scale))


def _transformers(place, shape):
    from others import transformers_rates

    return _other(place, shape, "transformers", transformers_rates)


def _vllm(place, shape):
    from others import vllm_rates

    return _other(place, shape, "vllm", vllm_rates)


def _other(place, shape, name, rates):
    from others import missing

    if why := missing(name, place.precision):
        return [{"system": name, "left out": why}]
    prompt = _prompts(place.bare(shape), place.scale, 1)[0]
    return list(rates(place.folder / shape, prompt, place.scale, place.precision))


# In the order in which they are done. What the first three find out is needed to believe the others.
PIECES = {
    "weights": Piece("The weights, and their bundle", 10, "an export that proves itself", _weights, _any),
    "proof": Piece(
        "Does it compute what torch computes?", 5, "parity within the bound; 31 of 32 answers or more alike", _proof
    ),
    "kernels": Piece("Which kernels attend?", 3, "XQA or cuDNN for steps, cuDNN or Flash for prompts", _kernels),
    "plans": Piece("What does the first run of a shape cost?", 5, "55 ms to 1 s where cuDNN plans, then none", _plans),
    "steps": Piece("How long is a step?", 5, "500 to 620 us at 100m and one row: launches bound it", _steps, _any),
    "captured": Piece(
        "And captured?", 5, "15 % of the bandwidth at 100m, 75 to 85 % at 8b, with one row", _captured, _any
    ),
    "profile": Piece(
        "Which kernels take its time?", 3, "the products of the layers, then the vocabulary's", _profile, _any
    ),
    "drawn": Piece("What does it cost to draw?", 3, "at 128 rows much: the host settles what is drawn", _drawn),
    "beside": Piece(
        "How long does a first token take beside 32 rows?", 3, "under three times what it takes alone", _beside, _any
    ),
    "blocks": Piece(
        "And with the cache in blocks?",
        10,
        "a first token sooner than from slots, as pieces share steps",
        _blocks,
    ),
    "blocks-kernels": Piece(
        "Which kernels attend over blocks, with cuDNN's attention and without?",
        5,
        "with it cuDNN for steps, without it XQA or Flash; the faster one is the default",
        _blocks_kernels,
    ),
    "blocks-captured": Piece(
        "And captured?", 5, "a step as long as a captured one over slots: it is one launch", _blocks_captured
    ),
    "memory": Piece(
        "What does a ready model take of the device?",
        3,
        "weights, slots, and under 1 GB for what runs need; nothing is left when it goes",
        _memory,
        _any,
    ),
    "ranking": Piece(
        "How long does it look for the best of all logits?",
        1,
        "half as long in half precision; in groups sooner where the vocabulary is large and rows are many",
        _ranking,
        _has_layers,
    ),
    "transformers": Piece(
        "What does transformers do?", 8, "fewer tokens per second at every number", _transformers, _has_layers
    ),
    "vllm": Piece(
        "What does vLLM do?", 8, "as many tokens per second at 1 and 8, more at 128 and 256", _vllm, _has_layers
    ),
}


def _in_order():
    """The pieces of a day: what is worth most, should it be short, then the rest."""
    first = (
        ("fp16", "100m", ("weights", "proof")),
        ("bf16", "100m", ("weights", "proof")),
        ("int4-fp16", "100m", ("weights", "proof")),
        ("fp16", "100m", ("kernels", "blocks-kernels")),
        ("fp16", "1b", ("weights", "captured", "profile", "blocks", "blocks-captured", "drawn", "memory")),
        ("fp16", "translator", ("weights", "captured", "beside")),
        ("fp16", "8b", ("weights", "captured", "proof")),
        ("int4-fp16", "8b", ("weights", "captured")),
    )
    yield from ((precision, shape, name) for precision, shape, names in first for name in names)
    for shape in ("100m", "1b", "translator", "8b"):
        for precision in ("fp16", "int4-fp16", "bf16"):
            yield from ((precision, shape, name) for name, piece in PIECES.items() if piece.of(SHAPES[shape]))


DAY = tuple(dict.fromkeys(_in_order()))
