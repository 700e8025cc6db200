"""LED: windows of attention, and a first token that sees all: our logits and answers are those of transformers."""

import asyncio

import pytest
import torch
from hf_models import LOGITS, VOCAB, Kind, change_config, converted, furthest, greedy, made, their_greedy, token_rows
from seq2seq_kinds import stacks

from loaded import Loaded, ask
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import as_asked, export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

NEW_TOKENS = 20
# Shorter than a window, as long as some, and of several.
LENGTHS = (7, 2, 3, 23, 12, 61, 40)


def draw(rng):
    """Draw a LED whose layers have windows of their own."""
    given = stacks(rng)
    del given["max_position_embeddings"], given["scale_embedding"]
    windows = [rng.choice([4, 8, 16]) for _ in range(given["encoder_layers"])]
    return given | {
        "attention_window": rng.choice([windows, 6]),
        "max_encoder_position_embeddings": 160,
        "max_decoder_position_embeddings": 96,
        "encoder_attention_heads": rng.choice([2, 3, 4]),
    }


LED = Kind("led", "LEDForConditionalGeneration", draw)


def first_alone(source):
    """What generate() is given, as the card of each released model says: the first token is global."""
    mask = torch.zeros_like(source)[None]
    mask[0, 0] = 1
    return {"input_ids": source[None], "global_attention_mask": mask}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(each, marks=pytest.mark.long) for each in range(2, 20))])
def test_it_writes_what_transformers_writes(seed, tmp_path):
    """Logits within 1e-4 at every place, and the same greedy tokens for sources of other lengths in one batch."""
    theirs = made(LED, seed, tmp_path)
    ours = converted(tmp_path, max_tokens=80)
    sources = [torch.tensor(row) for row in token_rows(VOCAB, LENGTHS, seed)]
    (tokens,) = token_rows(VOCAB, (30,), seed)
    target = torch.tensor([[ours.text.start_id, *tokens]])
    lengths = torch.tensor([len(source) for source in sources], dtype=torch.int32)
    padded = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True)
    with torch.inference_mode():
        together = ours.model.decode(target.expand(len(sources), -1), padded, lengths)
        for source, actual in zip(sources, together, strict=True):
            expected = theirs(**first_alone(source), decoder_input_ids=target).logits[0]
            assert LOGITS >= furthest(actual, expected)
    expected = [their_greedy(theirs, first_alone(source), NEW_TOKENS) for source in sources]
    asked = [Row(source, [ours.text.start_id]) for source in sources]
    assert expected == greedy(ours, asked, NEW_TOKENS)


@pytest.mark.slow
def test_long_texts_are_served_as_transformers_writes_them(tmp_path):
    """Asked at once and alone: the same tokens and bits."""
    directory, bundle = tmp_path / "led", tmp_path / "models" / "model" / "1"
    directory.mkdir()
    theirs = made(LED, 1, directory)
    export_checkpoint(directory, bundle, ExportOptions(max_tokens=64))
    rows = token_rows(VOCAB, (120, 30, 120, 7, 119, 64), 3)

    async def run():
        async with Loaded(bundle, slots=8) as model:
            plain = common_pb2.Decoding(greedy={}, max_new_tokens=NEW_TOKENS)
            asked = [{"token_ids": {"ids": row}, "decoding": plain, "return_scores": True} for row in rows]
            together = await asyncio.gather(*(ask(model, **each) for each in asked))
            return together, [await ask(model, **each) for each in asked]

    together, alone = asyncio.run(run())
    expected = [their_greedy(theirs, first_alone(torch.tensor(row)), NEW_TOKENS) for row in rows]
    assert expected == [list(each.completion.token_ids) for each in together]
    assert [each.completion.token_log_probs for each in alone] == [each.completion.token_log_probs for each in together]


def test_a_text_that_no_window_cuts_is_read_by_the_operator_of_other_encoders(tmp_path):
    """Where the longest text is no longer than a window reaches: the same answer without blocks."""
    theirs = made(LED, 4, tmp_path)
    change_config(tmp_path, attention_window=96)
    short, long = (converted(tmp_path, max_source_tokens=most) for most in (49, 50))
    assert (0, 48) == (short.model.blocks_of, long.model.blocks_of)
    target, source = torch.tensor([token_rows(VOCAB, (30,), 4)[0]]), torch.tensor(token_rows(VOCAB, (49,), 4))
    lengths = torch.tensor([49], dtype=torch.int32)
    with torch.inference_mode():
        one, other = (each.model.decode(target, source, lengths) for each in (short, long))
    assert LOGITS >= furthest(one, other)
    assert theirs.config.attention_window != 96


def test_adapters_are_refused_by_name(tmp_path):
    """Before anything is traced."""
    made(LED, 0, tmp_path)
    with pytest.raises(ExportError, match="adapters are not for models whose encoder attends in windows"):
        as_asked(converted(tmp_path), ExportOptions(adapters=2))


@pytest.mark.parametrize("window", [0, 5, [4], "4", 4.0])
def test_windows_that_are_none_are_refused_by_name(window, tmp_path):
    """Transformers fails at them while it answers."""
    made(LED, 0, tmp_path)
    change_config(tmp_path, attention_window=window)
    with pytest.raises(CheckpointError, match="attention_window"):
        convert(tmp_path, ExportOptions(), filled=False)
