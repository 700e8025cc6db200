"""Tiny random checkpoints that have a label for each moment of a recording."""

import torch
from tiny_parts import randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.sound import wav_of
from weft_export.families.conformer_ctc import ConformerCtc, ConformerCtcConfig
from weft_export.families.ctc import Ctc, CtcConfig
from weft_proto.v1 import bundle_pb2

RATE = 4000
LABELS = ("<pad>", "|", *"abcdefg")
PIECES = ("<pad>", *"abcd", *(f"\u2581{each}" for each in "efgh"))


def tiny_ctc() -> Checkpoint:
    """Return a transcriber of letters that hears half a second at 4 kHz, and whose first norm is over time."""
    config = CtcConfig(
        num_labels=len(LABELS),
        num_frames=100,
        convolution_widths=(16, 16),
        convolution_kernels=(10, 3),
        convolution_strides=(5, 4),
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_layers=2,
        position_kernel=8,
        position_groups=4,
    )
    ctc = bundle_pb2.CtcSpec(blank_id=0, word_delimiter="|", space=" ", normalized=True, min_samples=config.min_samples)
    frames = {"hop_size": config.hop_size, "num_frames": config.num_frames, "num_positions": config.num_frames}
    tone = torch.sin(torch.arange(1200) / 3) * torch.sin(torch.arange(1200) / 300)
    return Checkpoint(
        family="ctc",
        description="A random transcriber without a decoder for tests.",
        model=randomised(Ctc(config), 3.0),
        golden=bundle_pb2.Golden(audio_path="golden.wav"),
        audio=bundle_pb2.AudioSpec(sample_rate=RATE, ctc=ctc, **frames),
        labels=LABELS,
        files={"golden.wav": wav_of(tone, RATE)},
    )


def tiny_conformer() -> Checkpoint:
    """Return one of pieces of words that hears half a second at 4 kHz as log-mel energies."""
    config = ConformerCtcConfig(
        num_labels=len(PIECES),
        num_frames=25,
        num_mels=8,
        frame_size=20,
        num_halvings=2,
        convolution_width=6,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_layers=2,
        convolution_kernel=5,
    )
    mel = bundle_pb2.MelSpec(num_mels=8, fft_size=64, window_size=50, hop_size=20, preemphasis=0.97)
    ctc = bundle_pb2.CtcSpec(blank_id=0, space=" ", word_start="\u2581", min_samples=config.min_samples, mel=mel)
    frames = {"hop_size": config.hop_size, "num_frames": config.num_frames, "num_positions": config.num_frames}
    tone = torch.sin(torch.arange(1200) / 3) * torch.sin(torch.arange(1200) / 300)
    return Checkpoint(
        family="conformer_ctc",
        description="A random transcriber of pieces of words for tests.",
        model=randomised(ConformerCtc(config), 3.0),
        golden=bundle_pb2.Golden(audio_path="golden.wav"),
        audio=bundle_pb2.AudioSpec(sample_rate=RATE, ctc=ctc, **frames),
        labels=PIECES,
        files={"golden.wav": wav_of(tone, RATE)},
    )
