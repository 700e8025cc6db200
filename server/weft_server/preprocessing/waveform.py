"""Samples of a recording as a model hears them that reads them as they are, or has a label for each moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.ctc import VARIANCE_FLOOR, least_samples, num_labels_of
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.audio_file import FIELD
from weft_server.preprocessing.log_mel import LogMel
from weft_server.preprocessing.mel_frames import MelFrames
from weft_server.source import Frames, Waveform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft_proto.v1 import bundle_pb2
    from weft_server.preprocessing.log_mel import Span


class Waveforms:
    """Makes sources of samples. A window is heard by itself: what is before and behind it changes nothing."""

    def __init__(self, spec: bundle_pb2.AudioSpec) -> None:
        self._spec = spec
        self._mel = MelFrames(spec) if spec.ctc.HasField("mel") else None

    def source(self, samples: NDArray[np.float32], span: Span) -> Waveform:
        """Return the window of a recording. Raises InvalidRequest when it is too short for a label."""
        spec = self._spec
        num_labels = num_labels_of(spec, span.end - span.start)
        if not num_labels:
            why = f"has {span.end - span.start} samples at {spec.sample_rate} Hz; the model needs {least_samples(spec)}"
            raise InvalidRequest(FIELD, why, "AUDIO_TOO_SHORT")
        heard = samples[span.start : span.end]
        if spec.ctc.normalized:
            heard = (heard - heard.mean()) / np.sqrt(heard.var() + np.float32(VARIANCE_FLOOR))
        seconds = [each / spec.sample_rate for each in (spec.hop_size, *span, len(samples))]
        if self._mel is not None:
            return Frames(self._mel.energies(heard), num_labels, *seconds)
        return Waveform(heard, num_labels, *seconds)


def hearing_of(spec: bundle_pb2.AudioSpec) -> LogMel | Waveforms:
    """Return what makes sources of samples."""
    return Waveforms(spec) if spec.HasField("ctc") or spec.min_samples else LogMel(spec)
