"""A checkpoint imports what is for it: not the converters, families, proofs and tokenizers of others."""

import subprocess
import sys

import pytest
from decoder_kinds import DECODERS
from encoder_kinds import CLASSIFIERS
from hf_models import made

COUNTED = """
import sys
from pathlib import Path
from weft_export.export import load
from weft_export.options import ExportOptions

load(Path(sys.argv[1]), ExportOptions(), filled=False)
print(*sorted(name for name in sys.modules if name.startswith("weft_export")))
"""


def imported(directory):
    """The modules of the exporter that a new process has once it has read a checkpoint."""
    given = [sys.executable, "-c", COUNTED, str(directory)]
    return subprocess.run(given, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "most", "of_others"),
    [
        (next(each for each in DECODERS if each.name == "llama"), 96, "encoder_only"),
        (next(each for each in CLASSIFIERS if each.name == "bert"), 101, "decoder_only"),
    ],
    ids=["llama", "bert"],
)
def test_a_hugging_face_directory_imports_what_is_for_it(kind, most, of_others, tmp_path):
    """At most so many modules, and neither another family, nor what reads pictures, recordings or other tokenizers."""
    made(kind, 1, tmp_path)

    modules = imported(tmp_path)
    strangers = [
        f"families.{of_others}",
        "converters.sentence",
        "converters.pictures",
        "converters.audio_processor",
        "converters.pickles",
        "converters.quantized.reading",
        "converters.text.two_files",
        "converters.text.remade",
        "families.masked_lm",
        "verification.paged_session",
        "checkpoints.adapter_folder",
        "checkpoints.picture",
        "checkpoints.sound",
        "graphs.adapting",
        "verification.quality",
        "verification.mixed_parity",
        "verification.paged_stand_in",
    ]
    assert set() == {f"weft_export.{each}" for each in strangers} & set(modules)
    assert len(modules) <= most
