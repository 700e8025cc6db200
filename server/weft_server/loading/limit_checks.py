"""Runs each graph at the ends of what the manifest claims: the last ids, the longest inputs, the last position.

Without this, a bundle that claims more than its graphs can do would be ready. The first request at such an end would
fail, and with it all requests of its batch.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import MAX_TOP_TOKENS
from weft_proto.first_line import first_line
from weft_proto.questions import picture_places
from weft_proto.sight import feature_width, longest_stretch, sees
from weft_proto.sound import longest_prefix
from weft_proto.tasks import TASKS
from weft_proto.token_vectors import has_token_vectors, row_width
from weft_proto.v1 import bundle_pb2
from weft_server.engine.paged.paged_runner import PagedPromptPiece
from weft_server.engine.prefill_chunks import PREFILL_BUCKETS
from weft_server.engine.score_lane import score_feeds, scores_of
from weft_server.errors import BundleError
from weft_server.loading.longest_inputs import longest_source, takes_picture, text_source
from weft_server.models.explainer import AttentionChoice
from weft_server.requests.pictured_ids import PicturedIds, SeenPicture
from weft_server.requests.score import given_of
from weft_server.runtime.adapter_stack import NONE
from weft_server.runtime.session import is_out_of_memory
from weft_server.sequence import Adapter
from weft_server.source import Beside, Ids, feeds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_server.engine.decode_runner import DecodeRunner
    from weft_server.engine.paged.paged_runner import PagedRunner
    from weft_server.engine.slots import Slots
    from weft_server.engine.stretch_runner import StretchRunner
    from weft_server.models.explainer import Explainer
    from weft_server.runtime.session import Session
    from weft_server.source import Source

# Longer inputs are not tried. A run costs what its longest request costs, and that can grow with the square of it.
MAX_TOKENS = 2048
# Of a large model they are shorter. A graph's trials read so many tokens, times the weights: it takes seconds.
_MAX_WORK = 1 << 38
_LEAST_TOKENS = 64
# What the trials of one graph read together, in longest inputs. Answers are as long as inputs.
_EXPLAINED, _SCORED = 5, 5
# An adapter that adds zeros.
_NO_CHANGE = Adapter("", "", {})
# The lengths of two inputs that share a run: both ends of the shortest bucket.
_COMPANY = (1, PREFILL_BUCKETS[0])


def longest_tried(manifest: bundle_pb2.BundleManifest, num_inputs: int = 1) -> int:
    """Return how many tokens an input has at most, where trials read so many of the longest together."""
    weights = max(1, manifest.provenance.num_parameters)
    return max(_LEAST_TOKENS, min(MAX_TOKENS, _MAX_WORK // (num_inputs * weights)))


def verify_classifier(
    session: Session, manifest: bundle_pb2.BundleManifest, role: bundle_pb2.GraphRole.ValueType
) -> None:
    """Raise BundleError unless a graph without states takes the last id, the longest source, and two inputs at once."""
    task = TASKS[manifest.task]
    width = row_width(manifest.embedding) or len(manifest.labels) or manifest.text.source_vocab_size
    takes_image = takes_picture(manifest, role)
    for field, sources in _sources(manifest, longest_tried(manifest), takes_image=takes_image):
        bucket = max(source.bucket for source in sources)
        feeds = feeds_of(sources, bucket, manifest.text.pad_id)
        rows: tuple[int, ...] = (len(sources),)
        if role == bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER:
            places = sources[0].num_tokens if manifest.image.tiling.max_pixels else picture_places(manifest.image)
            rows, width = (len(sources), places), feature_width(manifest)
        if task.labels_tokens or task.fills_masks or task.labels_frames or has_token_vectors(manifest):
            rows = len(sources), sources[0].num_masks if task.fills_masks else bucket
        with claims(manifest, field):
            (found,) = session.run(feeds).values()
            _expect((*rows, width), found.shape)


def verify_decoder(runner: DecodeRunner, slots: Slots, manifest: bundle_pb2.BundleManifest) -> None:
    """Raise BundleError unless the graphs take the last ids, the longest source and the last position.

    An empty row beside a full one is tried too, and where the model takes adapters, one with an adapter beside one
    without. The slots are as new afterwards.
    """
    text, num_rows = manifest.text, min(2, slots.num_slots)
    takes_prompt = TASKS[manifest.task].takes_prompt
    if slots.stack:
        slots.adapters[0] = slots.stack.take(_NO_CHANGE)
    if not takes_prompt:
        _verify_encoder(runner, slots, manifest)
    slots.input_ids[:num_rows] = text.target_vocab_size - 1
    for field, past in (("text.target_vocab_size", 0), ("text.max_total_tokens", text.max_total_tokens - 1)):
        slots.past_lengths[:num_rows] = (past, 0)[:num_rows]
        with claims(manifest, field):
            runner.decode(num_rows)
    if takes_prompt:
        _verify_prompts(runner, slots, manifest)
    if slots.stack:
        slots.stack.let_go(int(slots.adapters[0]))
        slots.adapters[0] = NONE
    slots.input_ids[:], slots.past_lengths[:], slots.memory_lengths[:] = 0, 0, 1


def verify_paged(runner: PagedRunner, slots: Slots, manifest: bundle_pb2.BundleManifest) -> None:
    """Raise BundleError unless a paged graph takes the last ids and the last position, alone and beside a prompt.

    The slots and blocks are as new afterwards.
    """
    text, num_rows = manifest.text, min(2, slots.num_slots)
    longest = text.max_total_tokens - 1
    piece = np.full(min(longest, PREFILL_BUCKETS[0]), text.source_vocab_size - 1)
    for field, past in (("text.target_vocab_size", 0), ("text.max_total_tokens", longest)):
        with claims(manifest, field):
            slots.input_ids[0], slots.past_lengths[0] = text.target_vocab_size - 1, past
            runner.grow(0, past + 1)
            runner.run(1, [])
            runner.end(0)
    for field, past in (("text.source_vocab_size", 0), ("text.max_total_tokens", longest - len(piece))):
        with claims(manifest, field):
            slots.past_lengths[0] = past
            runner.grow(0, past + len(piece))
            runner.run(0, [PagedPromptPiece(0, piece, ends=True)])
            runner.end(0)
    if num_rows > 1 and runner.pool.num_free > 1:
        with claims(manifest, "text.source_vocab_size"):
            slots.past_lengths[:2] = 0
            runner.grow(0, 1)
            runner.grow(1, min(len(piece), runner.pool.size.block_tokens))
            runner.run(1, [PagedPromptPiece(1, piece[: runner.pool.size.block_tokens], ends=True)])
            runner.end(0)
            runner.end(1)
    slots.input_ids[:], slots.past_lengths[:] = 0, 0


def verify_explainer(explainer: Explainer, manifest: bundle_pb2.BundleManifest) -> None:
    """Raise BundleError unless the EXPLAIN graph takes the last ids and the longest request."""
    text, attention = manifest.text, manifest.attention
    prefix_ids = (text.target_vocab_size - 1,) * longest_prefix(manifest)
    reading = AttentionChoice(attention.default_layer if attention.HasField("default_layer") else None, None)
    task, most = TASKS[manifest.task], longest_tried(manifest, _EXPLAINED)
    for field, (source,) in (*_sources(manifest, most, together=False), *_places(manifest, most)):
        # A generated answer follows its prompt. So the longest answer is one to the shortest prompt.
        room = text.max_total_tokens - (source.num_tokens if task.takes_prompt else 0)
        answers = {field: 0}
        if task.writes_text:  # the last token of an answer is not read
            answers = {
                field: 1,
                "text.target_vocab_size": min(2, room),
                "text.max_new_tokens": min(text.max_new_tokens, room, most),
            }
        for claim, num_new in answers.items():
            with claims(manifest, claim):
                read = explainer.read(source, [text.target_vocab_size - 1] * num_new, reading, prefix_ids)
                _expect(read.weights.shape[:1], read.source_mass.shape)


def verify_scorer(session: Session, manifest: bundle_pb2.BundleManifest) -> None:
    """Raise BundleError unless the SCORE graph takes the last ids, the longest request, and two answers at once."""
    text, takes_prompt = manifest.text, TASKS[manifest.task].takes_prompt
    last = text.target_vocab_size - 1
    prefix_ids = (last,) * longest_prefix(manifest)
    num_top = min(MAX_TOP_TOKENS, text.target_vocab_size)
    most = longest_tried(manifest, _SCORED)
    for field, sources in _sources(manifest, most):
        room = text.max_total_tokens - max(source.num_tokens for source in sources) * takes_prompt
        for claim, size in ((field, 1), ("text.max_new_tokens", min(text.max_new_tokens, room, most))):
            given = [given_of(manifest, source, [last] * size, prefix_ids) for source in sources]
            batch = [each for each in given if each.alike == given[-1].alike]
            with claims(manifest, claim):
                for found in scores_of(batch, session.run(score_feeds(batch, text.pad_id))):
                    _expect((size, num_top), found.top_log_probs.shape)


def _verify_encoder(runner: DecodeRunner, slots: Slots, manifest: bundle_pb2.BundleManifest) -> None:
    for field, sources in _sources(manifest, longest_tried(manifest), together=slots.num_slots > 1):
        for slot, source in enumerate(sources):
            runner.begin(slot)
            slots.memory_lengths[slot] = source.num_places
            slots.past_lengths[slot] = runner.num_begun(source)
        with claims(manifest, field):
            runner.encode(sources, range(len(sources)))
    question = np.array(sources[0].asked_ids, np.int64)
    for first in range(0, len(question), runner.question_piece):
        with claims(manifest, "text.max_source_tokens"):
            runner.prefill(0, question[first : first + runner.question_piece])


def verify_stretches(runner: StretchRunner, slots: Slots, manifest: bundle_pb2.BundleManifest) -> None:
    """Raise BundleError unless the BIDIRECTIONAL graph takes the longest stretch, and one where the context ends.

    The slots are as new afterwards.
    """
    text = manifest.text
    room = text.max_total_tokens - 1  # a prompt leaves room for a new token
    longest = min(longest_stretch(manifest), longest_tried(manifest))
    for length, past in ((longest, 0), (min(longest, PREFILL_BUCKETS[0]), room - min(longest, PREFILL_BUCKETS[0]))):
        slots.past_lengths[0] = past
        with claims(manifest, "text.bidirectional"):
            features = np.zeros((length, feature_width(manifest)), np.float32)
            runner.read(0, np.full(length, text.source_vocab_size), Beside(features))
    slots.past_lengths[0] = 0


def _verify_prompts(runner: DecodeRunner, slots: Slots, manifest: bundle_pb2.BundleManifest) -> None:
    """Read a piece of a prompt at the beginning of a slot and at its end, alone and beside a row."""
    text = manifest.text
    longest = text.max_total_tokens - 1  # a prompt leaves room for a new token
    piece = np.full(min(longest, runner.chunks.size(PREFILL_BUCKETS[0])), text.source_vocab_size - 1)
    for field, past in (("text.source_vocab_size", 0), ("text.max_total_tokens", longest - len(piece))):
        slots.past_lengths[:2] = past
        with claims(manifest, field):
            runner.prefill(0, piece)
            if sees(manifest):
                slots.past_lengths[:2] = past
                _read_picture(runner, manifest, len(piece))
            if runner.mixes:
                slots.past_lengths[:2] = (text.max_total_tokens - 1 if past else 0, past)
                runner.mixed(1, piece, ends=True)


def _read_picture(runner: DecodeRunner, manifest: bundle_pb2.BundleManifest, length: int) -> None:
    """Read so many places of a picture, which are no tokens."""
    places = np.full(length, manifest.text.source_vocab_size)
    runner.prefill(0, places, Beside(np.zeros((length, feature_width(manifest)), np.float32)))


def _sources(
    manifest: bundle_pb2.BundleManifest, most: int, *, together: bool = True, takes_image: bool | None = None
) -> Iterator[tuple[str, list[Source]]]:
    """Yield inputs of at most so many tokens that share a run, and which claim of the manifest it tries.

    `takes_image` is what the task says, unless a graph is of one of two kinds of inputs.
    """
    text, task = manifest.text, TASKS[manifest.task]
    takes_image = task.takes_image if takes_image is None else takes_image
    last = text.source_vocab_size - 1
    if takes_image or task.takes_audio:
        source = longest_source(manifest, takes_image=takes_image, token_id=last, most=most)
        yield "image" if takes_image else "audio", [source] * (1 + together)
        return
    longest = min(text.max_total_tokens - 1 if task.takes_prompt else text.max_source_tokens, most)
    company = [np.full(min(size, longest), last) for size in _COMPANY[: 1 + together]]
    yield "text.source_vocab_size", [text_source(manifest, ids) for ids in company]
    claim = "text.max_total_tokens" if task.takes_prompt else "text.max_source_tokens"
    yield claim, [text_source(manifest, np.full(longest, last))]


def _places(manifest: bundle_pb2.BundleManifest, most: int) -> Iterator[tuple[str, list[Source]]]:
    """Yield a prompt that is nothing but places of a picture, where prompts may hold one."""
    if width := feature_width(manifest):
        text = manifest.text
        ids = np.full(min(text.max_total_tokens - 1, most), text.image_id)
        picture = SeenPicture(0, b"", np.zeros((len(ids), width), np.float32))
        yield "text.max_total_tokens", [PicturedIds(ids, (picture,), text.source_vocab_size, Ids(ids))]


@contextmanager
def claims(manifest: bundle_pb2.BundleManifest, field: str) -> Iterator[None]:
    """Turn whatever a run raises into a sentence that names the claim."""
    part, _, name = field.partition(".")
    value = f" {getattr(getattr(manifest, part), name)}" if name else ""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise  # which is no claim's fault
        raise BundleError(f"{field}{value} is more than a graph can do: {first_line(error)}") from error


def _expect(expected: tuple[int, ...], found: tuple[int, ...]) -> None:
    if expected != found:
        raise ValueError(f"it gives {list(found)} and not {list(expected)}")
