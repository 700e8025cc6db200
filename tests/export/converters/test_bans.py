"""Tokens that a checkpoint never writes, where a Decoding holds them: which it may have, and which not."""

from hf_models import VOCAB, converted, made
from seq2seq_kinds import SEQ2SEQ

from weft_export.checkpoints.directory import save_checkpoint
from weft_export.converters.convert import convert
from weft_export.options import ExportOptions

KINDS = {kind.name: kind for kind in SEQ2SEQ}


def suppressed(directory, **settings):
    """What a T5 with settings suppresses by its Decoding, and the notes of its conversion."""
    model = made(KINDS["t5"], 1, directory)
    model.generation_config.update(max_new_tokens=9, **settings)
    model.generation_config.save_pretrained(directory)
    found = convert(directory, ExportOptions(), filled=False)
    return list(found.checkpoint.decoding.suppressed.ids), found.notes


def test_ids_that_are_no_tokens_are_passed_over(tmp_path):
    """As generate() does. A server would refuse a bundle whose settings name them."""
    assert ([7], ()) == suppressed(tmp_path, suppress_tokens=[7, VOCAB, 50_000])
    assert ([], ()) == suppressed(tmp_path, begin_suppress_tokens=[VOCAB])
    assert not converted(tmp_path).decoding.HasField("suppressed_first")


def test_more_bans_than_a_decoding_holds_are_told(tmp_path):
    """A note names them. A head without a bias cannot have them either."""
    ids, notes = suppressed(tmp_path, suppress_tokens=list(range(2, 1027)))

    assert [] == ids
    told = "1,025 single tokens of bad_words_ids and suppress_tokens"
    assert (f"of the checkpoint's settings of generate(), answers do not follow: {told}",) == notes


def test_a_checkpoint_of_ours_keeps_them(tmp_path):
    """They stand in `decoding` of its config.json."""
    suppressed(tmp_path / "theirs", suppress_tokens=[7, 9])
    checkpoint = converted(tmp_path / "theirs")
    save_checkpoint(tmp_path / "ours", checkpoint)

    assert '"suppressed"' in (tmp_path / "ours" / "config.json").read_text()
