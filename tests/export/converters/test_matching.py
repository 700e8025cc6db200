"""CLIP with labels of the request: both towers are those of transformers, and so is what is between them."""

import json

import pytest
import tokenizers
import torch
from hf_models import END, LOGITS, NUM_LONG, change_config, converted, furthest
from hf_models import made as made_of
from picture_kinds import CLIP_TEXTS_ALONE
from test_zero_shot import LABELS, made

from weft_export.errors import CheckpointError
from weft_proto.v1 import common_pb2


def ending_with_end(directory):
    """Let the tokenizer of a directory put END behind each text, and return it."""
    path = str(directory / "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(path)
    ending = tokenizers.processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", END)])
    tokenizer.post_processor = ending
    tokenizer.save(path)
    return tokenizer


def made_pair(seed, directory):
    """Write a random CLIP that is read at the token that ends its texts; return it, random pixels, its tokenizer."""
    theirs, pixels, _ = made(seed, directory)
    tokenizer = ending_with_end(directory)
    config = json.loads((directory / "config.json").read_text())
    config["text_config"]["eos_token_id"] = END
    (directory / "config.json").write_text(json.dumps(config))
    theirs.text_model.eos_token_id = END
    return theirs, pixels, tokenizer


def check(seed, directory):
    """Hold one random CLIP to transformers; our texts lie padded in one batch, theirs alone."""
    theirs, pixels, tokenizer = made_pair(seed, directory)
    ours = converted(directory)
    texts = [torch.tensor(tokenizer.encode(f"This is a photo of {label}.").ids) for label in LABELS]
    lengths = torch.tensor([len(text) for text in texts], dtype=torch.int32)
    with torch.inference_mode():
        rows = [theirs(input_ids=text[None], pixel_values=pixels) for text in texts]
        logits = torch.cat([row.logits_per_image for row in rows], dim=1)
        padded = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
        actual = ours.model(pixels, padded, lengths)
        assert LOGITS >= furthest(ours.model.pictures(pixels), rows[0].image_embeds)
        assert LOGITS >= furthest(ours.model.texts(padded, lengths), torch.cat([row.text_embeds for row in rows]))
    assert LOGITS >= furthest(actual, logits)
    assert LOGITS >= furthest(actual.softmax(dim=1), logits.softmax(dim=1))
    assert ("This is a photo of {}.", common_pb2.TASK_MATCH) == (ours.label_text, ours.task)


def test_vectors_and_logits_are_those_of_transformers(tmp_path):
    """Within 1e-4, and so are the probabilities."""
    check(0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
def test_so_they_are_for_random_models(seed, tmp_path):
    """The same law for twenty random configurations."""
    check(seed, tmp_path)


def test_the_text_tower_alone_embeds(tmp_path):
    """As CLIPTextModelWithProjection is saved."""
    theirs = made_of(CLIP_TEXTS_ALONE, 0, tmp_path)
    tokenizer = ending_with_end(tmp_path)
    ours = converted(tmp_path)
    text = torch.tensor([tokenizer.encode("a cat").ids])
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(theirs(text).text_embeds, dim=-1)
        assert LOGITS >= furthest(ours.model(text, torch.tensor([text.shape[1]], dtype=torch.int32)), expected)
    assert common_pb2.TASK_EMBED_TEXT == ours.task
    with pytest.raises(CheckpointError, match="a text is read at its last place here: --pooling mean is not for it"):
        converted(tmp_path, pooling="mean")


def test_what_cannot_be_matched_is_named(tmp_path):
    """A text that does not end where CLIP is read; a label's text with several places; a text of labels for another."""
    made_pair(0, tmp_path)
    with pytest.raises(
        CheckpointError, match=r"label_text must hold \{\} once, where the label stands, and holds it 2"
    ):
        converted(tmp_path, label_text="{} {}")
    texts = json.loads((tmp_path / "config.json").read_text())["text_config"]
    change_config(tmp_path, text_config=texts | {"eos_token_id": 7})
    with pytest.raises(CheckpointError, match=r"does not end a text with the token 7, where CLIP is read"):
        converted(tmp_path)
    change_config(tmp_path, architectures=["CLIPForImageClassification"])
    with pytest.raises(
        CheckpointError, match="the text of a label is chosen for CLIPModel and SiglipModel, not for CLIPForIm"
    ):
        converted(tmp_path, label_text="a {}")
