"""The longest inputs that a model takes, with nothing in them: graphs are tried and warmed with such."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.ctc import least_samples
from weft_proto.questions import encoder_asks
from weft_proto.sound import window_samples
from weft_proto.tasks import TASKS
from weft_proto.tiling import most_places
from weft_proto.v1 import bundle_pb2
from weft_server.preprocessing.log_mel import Span, sound_of
from weft_server.preprocessing.pictured_text import PicturedText
from weft_server.preprocessing.waveform import Waveforms
from weft_server.source import AskedPixels, Cells, Ids, Masked

if TYPE_CHECKING:
    from weft_server.source import Source


def takes_picture(manifest: bundle_pb2.BundleManifest, role: bundle_pb2.GraphRole.ValueType) -> bool:
    """Whether a graph without states reads pictures. Of one model's graphs, one may and another may not."""
    if role == bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER:
        return True
    return TASKS[manifest.task].takes_image and role != bundle_pb2.GRAPH_ROLE_EMBEDDER


def longest_source(
    manifest: bundle_pb2.BundleManifest, *, takes_image: bool, token_id: int = 0, most: int | None = None
) -> Source:
    """Return a picture, a window of a recording, or as many of `token_id` as a source may have.

    No text in it, not even a question, has more tokens than `most`.
    """
    text, image, audio = manifest.text, manifest.image, manifest.audio
    longest = text.max_source_tokens if most is None else min(text.max_source_tokens, most)
    if takes_image and image.tiling.max_pixels:
        return _largest_picture(image, most)
    if takes_image:
        pixels = np.zeros((image.channels, image.height, image.width), np.float32)
        shown = (pixels, (image.grid_rows, image.grid_columns), image.num_class_tokens)
        if encoder_asks(text):
            return PicturedText(*shown, asked=np.full(longest, token_id))
        return AskedPixels(*shown, (token_id,) * longest if TASKS[manifest.task].takes_question else ())
    if TASKS[manifest.task].labels_frames or audio.min_samples:
        size = window_samples(audio)
        if most is not None:
            size = min(size, least_samples(audio) + (most - 1) * audio.hop_size)
        return Waveforms(audio).source(np.zeros(size, np.float32), Span(0, size))
    if TASKS[manifest.task].takes_audio:
        return sound_of(np.zeros((audio.num_mels, audio.num_frames), np.float32), audio)
    return text_source(manifest, np.full(longest, token_id))


def _largest_picture(image: bundle_pb2.ImageSpec, most: int | None) -> Cells:
    """Return a picture of as many cells as one has, or of about `most`. It is as wide as high, but for one row."""
    count = most_places(image) if most is None else min(most_places(image), most)
    columns = math.isqrt(count)
    grid = count // columns, columns
    return Cells(np.zeros((*grid, image.channels, image.height, image.width), np.float32), grid)


def text_source(manifest: bundle_pb2.BundleManifest, ids: np.ndarray) -> Ids:
    """Return the ids of a text as a model reads them. If it fills masks, the first is one, whatever its id."""
    return Masked(ids, np.zeros(1, np.int64)) if TASKS[manifest.task].fills_masks else Ids(ids)
