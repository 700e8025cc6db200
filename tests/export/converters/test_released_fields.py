"""Fields of config.json that are in files as their makers released them, and that no class of transformers writes."""

from functools import partial

import pytest
from hf_models import change_config, made
from picture_kinds import REGISTERS
from seq2seq_kinds import SEQ2SEQ
from test_pictures import made_with_processor

from weft_export.choices import Pooling
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions

KINDS = {
    "umt5": partial(made, next(kind for kind in SEQ2SEQ if kind.name == "umt5"), 0),
    "registers": partial(made_with_processor, REGISTERS, 0),
}
OPTIONS = {"registers": ExportOptions(pooling=Pooling.CLS)}
# Of google/umt5-small and facebook/dinov2-with-registers-small.
RELEASED = {
    "umt5": {"scalable_attention": True},
    "registers": {"interpolate_antialias": True, "interpolate_offset": 0.0},
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_field_is_taken(name, tmp_path):
    """It says what the library does without it."""
    KINDS[name](tmp_path)
    change_config(tmp_path, **RELEASED[name])
    convert(tmp_path, OPTIONS.get(name, ExportOptions()), filled=False)


@pytest.mark.parametrize("field", ["interpolate_antialias", "interpolate_offset"])
def test_what_the_library_does_not_do_is_refused(field, tmp_path):
    """Another value of it would be another model."""
    KINDS["registers"](tmp_path)
    change_config(tmp_path, **{field: 0.1})
    with pytest.raises(CheckpointError, match=field):
        convert(tmp_path, OPTIONS["registers"], filled=False)


def test_whose_logits_are_flatter_than_its_file_says_is_told(tmp_path):
    """Google's files of UMT5 say that the projection is not tied, and transformers 5 scales it all the same."""
    KINDS["umt5"](tmp_path)
    for is_tied in (True, False):
        change_config(tmp_path, tie_word_embeddings=is_tied)
        notes = convert(tmp_path, ExportOptions(), filled=False).notes
        assert is_tied != any(note.startswith("tie_word_embeddings is false") for note in notes)
