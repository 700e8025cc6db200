"""What words attend to in the pictures of a chat: the weights that transformers tells of the same model."""

import asyncio

import numpy as np
import pytest
import torch
from sight_kinds import SEEING, TILING, as_messages, chat_of, made_seeing, pictures, their_inputs

from loaded import Loaded, ask
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

MAX_TOKENS = 400
DECODING = common_pb2.Decoding(greedy={}, max_new_tokens=6)
# With it, both kinds have several layers.
SEED = 5


def chats():
    """With a picture in an earlier turn and one in the last, with one alone, and without any."""
    shown, asked = pictures(4, 1), {"type": "text", "text": "What is it?"}
    alone = [{"role": "user", "content": [{"type": "image", "image": shown[3]}, asked]}]
    return [chat_of(shown[:2]), alone, [{"role": "user", "content": [asked]}]]


@torch.inference_mode()
def their_attentions(theirs, processor, chat, token_ids):
    """Each layer's attention [heads, rows, prompt], from the prompt's last token on, in a pass over the whole."""
    inputs = dict(their_inputs(processor, chat))
    length = inputs["input_ids"].shape[1]
    ids = torch.cat((inputs["input_ids"], torch.tensor([token_ids[:-1]], dtype=torch.int64)), dim=1)
    inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    layers = theirs(**inputs, output_attentions=True, use_cache=False).attentions
    return [each[0, :, length - 1 :, :length].numpy() for each in layers]


def readings(heads):
    """The default, each layer's average, and each of its heads."""
    layers = [{"layer": layer} for layer in range(len(heads))]
    return [{}, *layers, *({**each, "head": head} for each in layers for head in range(heads[each["layer"]]))]


def explained(bundle, asked):
    """What a server tells of each chat and each reading, all at once, and again one by one."""

    async def run():
        async with Loaded(bundle, slots=16) as model:
            requests = [
                {"messages": as_messages(chat), "decoding": DECODING, "explain": common_pb2.Explain(**reading)}
                for chat, reading in asked
            ]
            together = await asyncio.gather(*(ask(model, **each) for each in requests))
            return zip(together, [await ask(model, **each) for each in requests], strict=True)

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pytest.param(SEEING[0], id=SEEING[0].name), pytest.param(TILING[0], id=TILING[0].name, marks=pytest.mark.long)],
)
def test_what_lights_up_is_what_transformers_attends_to(kind, tmp_path):
    """Each head, and the average of heads: within 1e-4, over words and places of pictures; the same bits in company."""
    theirs, processor = made_seeing(kind, SEED, tmp_path / "theirs")
    export_checkpoint(tmp_path / "theirs", tmp_path / "m" / "1", ExportOptions(max_tokens=MAX_TOKENS))
    theirs.set_attn_implementation("eager")
    text = theirs.config.text_config
    last = text.num_hidden_layers - 1
    assert last
    asked = [(chat, each) for chat in chats() for each in readings([text.num_attention_heads] * (last + 1))]
    for (chat, reading), (answer, alone) in zip(asked, explained(tmp_path / "m" / "1", asked), strict=True):
        alignment = answer.alignment
        assert alignment == alone.alignment
        layer = their_attentions(theirs, processor, chat, answer.completion.token_ids)[reading.get("layer", last)]
        expected = layer[reading["head"]] if "head" in reading else layer.mean(axis=0)
        weights = np.array(alignment.weights).reshape(len(answer.completion.token_ids), -1)
        mass = np.array(alignment.source_mass)
        np.testing.assert_allclose(expected, weights * mass[:, None], atol=1e-4)
        np.testing.assert_allclose(1, weights.sum(axis=1), atol=1e-5)
        assert weights.shape[1] == len(alignment.source_tokens) == answer.completion.usage.input_tokens
        _check_columns(alignment, sum(part["type"] == "image" for turn in chat for part in turn["content"]))


@pytest.mark.long
def test_a_rounded_model_looks_where_its_own_does(tmp_path):
    """At int8 each row is a distribution, over the same columns, and near that of the weights that were rounded."""
    made_seeing(SEEING[0], SEED, tmp_path / "theirs")
    exact, rounded = tmp_path / "exact" / "1", tmp_path / "rounded" / "1"
    export_checkpoint(tmp_path / "theirs", exact, ExportOptions(max_tokens=MAX_TOKENS))
    export_checkpoint(tmp_path / "theirs", rounded, ExportOptions(max_tokens=MAX_TOKENS, precision="int8"))
    asked = [(chat, {"layer": 0}) for chat in chats()]
    for (right, _), (near, again) in zip(explained(exact, asked), explained(rounded, asked), strict=True):
        assert near.alignment == again.alignment
        assert (right.alignment.source_tokens, right.alignment.pictures) == (
            near.alignment.source_tokens,
            near.alignment.pictures,
        )
        # The first row is of the same ids, whatever was written.
        width = len(near.alignment.source_tokens)
        first, other = (np.array(each.alignment.weights[:width]) for each in (right, near))
        np.testing.assert_allclose(1, other.sum(), atol=1e-5)
        assert 0.1 > np.abs(first - other).sum() > 0


def _check_columns(alignment, num_pictures):
    """Each picture's grids are columns of its own, and all of them are those of the model's token for pictures."""
    places = {column for column, token in enumerate(alignment.source_tokens) if token == "<image>"}
    assert list(range(num_pictures)) == sorted({each.picture for each in alignment.pictures})
    cells = [
        each.first_column + row * each.row_columns + column
        for each in alignment.pictures
        for row in range(each.grid_rows)
        for column in range(each.grid_columns)
    ]
    assert len(set(cells)) == len(cells)
    assert places >= set(cells)
    assert bool(places) == bool(num_pictures)
