"""CLIP with labels that stay: our probabilities are those that transformers gets by comparing pictures with texts."""

import pytest
import tokenizers
import torch
from hf_models import END, LOGITS, NUM_LONG, change_config, converted, furthest
from picture_kinds import WHOLE_CLIP
from test_pictures import made_with_processor

from weft_export.errors import CheckpointError

LABELS = ("a cat", "crème brûlée", "x", "the dog, which is asleep in the house")


def made(seed, directory):
    """Write a random CLIP, whose texts end with END; return it, random pixels, and its tokenizer."""
    model, pixels = made_with_processor(WHOLE_CLIP, seed, directory)
    path = directory / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<end> $A <end>", special_tokens=[("<end>", END)]
    )
    tokenizer.enable_truncation(5)
    tokenizer.save(str(path))
    tokenizer.no_truncation()
    return model, pixels, tokenizer


def check(seed, directory, **text):
    """Hold one random CLIP to transformers."""
    theirs, pixels, tokenizer = made(seed, directory)
    texts = [text.get("label_text", "This is a photo of {}.").replace("{}", label) for label in LABELS]
    ours = converted(directory, labels=LABELS, **text)

    with torch.inference_mode():
        rows = [theirs(input_ids=torch.tensor([tokenizer.encode(each).ids]), pixel_values=pixels) for each in texts]
        expected = torch.cat([row.logits_per_image for row in rows], dim=1)
        actual = ours.model(pixels)
    # Of a cosine they are the share that logit_scale says.
    assert LOGITS >= furthest(actual, expected)
    assert LABELS == ours.labels


def test_labels_are_texts(tmp_path):
    """Logits within 1e-4, with the usual text around a label."""
    check(0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
def test_so_they_are_for_random_models(seed, tmp_path):
    """The same law for twenty random configurations, with another text."""
    check(seed, tmp_path, label_text="{} and {}")


def test_labels_fit(tmp_path):
    """One that is too long, a token that is no word of the model's, a text without a place for the label."""
    made(0, tmp_path)
    with pytest.raises(CheckpointError, match=r"the text of the label 'y+ has \d+ tokens; 1 to 100 are taken"):
        converted(tmp_path, labels=("x", "y" * 200))
    with pytest.raises(CheckpointError, match=r"has no \{\} where the label stands"):
        converted(tmp_path, labels=LABELS, label_text="a photo")
    with pytest.raises(CheckpointError, match="labels are not distinct"):
        converted(tmp_path, labels=("x", "x"))
    change_config(tmp_path, text_config={"vocab_size": 200, "hidden_size": 8, "num_attention_heads": 1})
    with pytest.raises(CheckpointError, match=r"makes the token \d+ of the label 'a cat'; the model has 200"):
        converted(tmp_path, labels=LABELS)
    change_config(tmp_path, text_config={"num_hidden_layers": 10**9})
    with pytest.raises(CheckpointError, match=r"num_layers must be a whole number in \[1, 1024\]"):
        converted(tmp_path, labels=LABELS)
    (tmp_path / "tokenizer.json").unlink()
    change_config(tmp_path, text_config={})
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        converted(tmp_path, labels=LABELS)


def test_who_has_labels_takes_no_others(tmp_path):
    """They stand in config.json."""
    made(0, tmp_path)
    change_config(tmp_path, architectures=["CLIPForImageClassification"])
    with pytest.raises(CheckpointError, match="labels are chosen for CLIPModel"):
        converted(tmp_path, labels=LABELS)
