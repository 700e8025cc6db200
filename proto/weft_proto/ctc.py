"""What a CtcSpec means: how many labels a recording has, and what a spec may not say. Exporter and server ask here."""

from weft_proto.v1 import bundle_pb2

# It is added to the variance of a window's samples.
VARIANCE_FLOOR = 1e-7
# A tenth of a second: what is left behind the last cut of a long recording is longer.
_MOST_SHARE = 10
# Of MelSpec: it is added to energies before their logarithm, and to the deviation of logarithms.
LEAST_ENERGY, LEAST_DEVIATION = 2.0**-24, 1e-5


def num_labels_of(spec: bundle_pb2.AudioSpec, num_samples: int) -> int:
    """Return how many labels, or places of a memory, so many samples have that a model reads as they are.

    It is 0 where they are too few for one.
    """
    return max(0, (num_samples - least_samples(spec)) // spec.hop_size + 1)


def least_samples(spec: bundle_pb2.AudioSpec) -> int:
    """Return how many samples the first of them is made of."""
    return spec.ctc.min_samples if spec.HasField("ctc") else spec.min_samples


def num_frames_of(mel: bundle_pb2.MelSpec, num_samples: int) -> int:
    """Return how many frames of energies so many samples have."""
    return num_samples // mel.hop_size


def mel_audio(spec: bundle_pb2.AudioSpec) -> bundle_pb2.AudioSpec:
    """Return the sizes that mel_triangles asks for."""
    mel = spec.ctc.mel
    return bundle_pb2.AudioSpec(sample_rate=spec.sample_rate, num_mels=mel.num_mels, fft_size=mel.fft_size)


def ctc_fault(spec: bundle_pb2.AudioSpec, num_labels: int) -> str | None:
    """Say what is wrong with an AudioSpec of a model that has labels for each moment, or None."""
    ctc = spec.ctc
    set_fields = {field.name for field, _ in spec.ListFields()}
    others = set_fields - {"sample_rate", "hop_size", "num_frames", "num_positions", "ctc"}
    if others:
        return f"audio: it has {min(others)} beside ctc"
    if not spec.hop_size or not spec.num_frames or spec.num_positions != spec.num_frames:
        return "audio: with ctc, hop_size and num_frames are needed, and num_positions is num_frames"
    if ctc.blank_id >= num_labels:
        return f"audio.ctc.blank_id is {ctc.blank_id}, and there are {num_labels} labels"
    if fault := least_fault(spec):
        return f"audio.ctc.{fault}"
    if ctc.word_start and (ctc.word_delimiter or ctc.space != " "):
        return "audio.ctc: word_start is for a model without word_delimiter, and with a space of one blank"
    return _mel_fault(spec) if ctc.HasField("mel") else None


def least_fault(spec: bundle_pb2.AudioSpec) -> str | None:
    """Say what is wrong with min_samples, or None."""
    least, most = least_samples(spec), spec.sample_rate // _MOST_SHARE
    if 1 <= least <= most:
        return None
    return f"min_samples is {least}, not in [1, {most}], which is a tenth of a second"


def _mel_fault(spec: bundle_pb2.AudioSpec) -> str | None:
    ctc, mel = spec.ctc, spec.ctc.mel
    if ctc.normalized:
        return "audio.ctc: normalized is for a model that reads samples, and it has mel"
    if mel.fft_size % 2 or not 0 < mel.hop_size <= mel.window_size <= mel.fft_size:
        return "audio.ctc.mel: fft_size is even, hop_size is in [1, window_size], and window_size at most fft_size"
    if spec.hop_size % mel.hop_size or ctc.min_samples < mel.hop_size:
        return "audio.ctc.mel: audio.hop_size is a multiple of its hop_size, and min_samples is at least that"
    return None
