"""Samples of a recording as a model hears them that reads them as they are, or has a label for each moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.ctc import (
    LEAST_DEVIATION,
    LEAST_ENERGY,
    VARIANCE_FLOOR,
    least_samples,
    mel_audio,
    num_frames_of,
    num_labels_of,
)
from weft_proto.sound import mel_triangles
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.audio_file import FIELD
from weft_server.preprocessing.log_mel import LogMel
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


class MelFrames:
    """Makes log-mel energies of samples, each mel normed over the frames. See MelSpec for each step."""

    def __init__(self, spec: bundle_pb2.AudioSpec) -> None:
        self._mel = mel = spec.ctc.mel
        self._triangles = np.array(mel_triangles(mel_audio(spec))).T
        before = (mel.fft_size - mel.window_size) // 2
        behind = mel.fft_size - mel.window_size - before
        self._hann = np.pad(np.hanning(mel.window_size), (before, behind))

    def energies(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return energies float32 [frames, num_mels] of the samples of one window, of at least one frame."""
        mel = self._mel
        sound = samples.astype(np.float64)
        sound[1:] -= mel.preemphasis * sound[:-1]
        sound = np.pad(sound, mel.fft_size // 2)
        num_frames = num_frames_of(mel, len(samples))
        frames = np.lib.stride_tricks.sliding_window_view(sound, mel.fft_size)[:: mel.hop_size][:num_frames]
        powers = np.abs(np.fft.rfft(frames * self._hann)) ** 2
        logs = np.log(powers @ self._triangles + LEAST_ENERGY)
        logs -= logs.mean(axis=0)
        # A single frame is its own mean.
        deviation = np.sqrt(np.square(logs).sum(axis=0) / max(1, num_frames - 1))
        energies: NDArray[np.float32] = (logs / (deviation + LEAST_DEVIATION)).astype(np.float32)
        return energies


def hearing_of(spec: bundle_pb2.AudioSpec) -> LogMel | Waveforms:
    """Return what makes sources of samples."""
    return Waveforms(spec) if spec.HasField("ctc") or spec.min_samples else LogMel(spec)
