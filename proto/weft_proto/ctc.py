"""What a CtcSpec means: how many labels a recording has, and what a spec may not say. Exporter and server ask here."""

from weft_proto.v1 import bundle_pb2

# It is added to the variance of a window's samples.
VARIANCE_FLOOR = 1e-7
# A tenth of a second: what is left behind the last cut of a long recording is longer.
_MOST_SHARE = 10


def num_labels_of(spec: bundle_pb2.AudioSpec, num_samples: int) -> int:
    """Return how many labels so many samples have, at most those of a window; 0 where they are too few for one."""
    return max(0, (num_samples - spec.ctc.min_samples) // spec.hop_size + 1)


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
    if not 1 <= ctc.min_samples <= spec.sample_rate // _MOST_SHARE:
        most = spec.sample_rate // _MOST_SHARE
        return f"audio.ctc.min_samples is {ctc.min_samples}, not in [1, {most}], which is a tenth of a second"
    return None
