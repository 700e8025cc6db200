"""Models of others that read pictures and write texts: our logits and tokens are theirs."""

import json

import pytest
import torch
from captioner_kinds import CAPTIONERS
from hf_models import LOGITS, NUM_LONG, VOCAB, change_config, converted, furthest, greedy, made, token_rows

from weft_export.converters.convert import convert
from weft_export.converters.generation import fixed_generation, read_generation
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions

NUM_PICTURES, NEW_TOKENS = 3, 64


def with_processor(directory):
    """Write how pictures become pixels; return a batch of random ones."""
    config = json.loads((directory / "config.json").read_text())
    side = config.get("encoder", config.get("vision_config"))["image_size"]
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": side, "width": side}}
    statistics = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (directory / "preprocessor_config.json").write_text(json.dumps(processor | statistics))
    return torch.randn(NUM_PICTURES, 3, side, side)


def their_logits(model, pixels, target):
    """Return the logits of a target for a batch of pictures."""
    if hasattr(model, "text_decoder"):
        seen = model.vision_model(pixel_values=pixels)[0]
        return model.text_decoder(input_ids=target, encoder_hidden_states=seen).logits
    return model(pixel_values=pixels, decoder_input_ids=target).logits


def their_captions(model, pixels, max_new_tokens=NEW_TOKENS):
    """Return what generate() writes for each picture, without beams."""
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": max_new_tokens}
    with torch.inference_mode():
        return [model.generate(pixel_values=each[None], **settings)[0].tolist()[1:] for each in pixels]


def check(kind, seed, directory):
    """Hold one random model to transformers: whole targets, and 64 greedy tokens of a batch."""
    theirs = made(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    pixels = with_processor(directory)
    ours = converted(directory, max_tokens=80)

    (row,) = token_rows(VOCAB, (40,), seed)
    target = torch.tensor([[ours.text.start_id, *row]]).expand(NUM_PICTURES, -1)
    with torch.inference_mode():
        expected = their_logits(theirs, pixels, target)
        actual = ours.model.decode(target, pixels)
    assert LOGITS >= furthest(actual, expected)

    asked = [Row(each, [ours.text.start_id]) for each in pixels]
    assert their_captions(theirs, pixels) == greedy(ours, asked, NEW_TOKENS)


@pytest.mark.parametrize("kind", CAPTIONERS, ids=lambda kind: kind.name)
def test_a_captioner_writes_what_transformers_writes(kind, tmp_path):
    """Logits within 1e-4 at every place, and the same 64 greedy tokens."""
    check(kind, 0, tmp_path)


def test_a_blip_writes_by_no_file(tmp_path):
    """Its generate() asks neither generation_config.json nor config.json for settings: a note names what they ask."""
    model_class = type(made(CAPTIONERS[2], 0, tmp_path))
    pixels = with_processor(tmp_path)
    path = tmp_path / "generation_config.json"
    plain = json.loads(path.read_text())
    captions, read = [], []
    for more in (
        {},
        {"num_beams": 3, "sequence_bias": [[[13], 9.0]], "max_length": 9, "top_p": 0.5, "do_sample": False},
    ):
        path.write_text(json.dumps(plain | more))
        change_config(tmp_path, num_beams=1 + len(more), max_length=30 - len(more))
        with torch.inference_mode():
            model = model_class.from_pretrained(tmp_path).eval()
            captions.append(model.generate(pixel_values=pixels, max_new_tokens=12).tolist())
        read.append(convert(tmp_path, ExportOptions(), filled=False))
    assert captions[0] == captions[1]
    settings = [(each.checkpoint.decoding, each.checkpoint.max_new_tokens, each.checkpoint.text) for each in read]
    assert settings[0] == settings[1]
    (note,) = set(read[1].notes) - set(read[0].notes)
    assert note.endswith(
        "answers do not follow: eos_token_id is 4, num_beams is 3, sequence_bias is [[[13], 9.0]], max_length is 9"
    )


# A key that nobody knows, another end, and a number that is none, where texts are drawn and where not.
TOLD = [{"foo": 3}, {"eos_token_id": 9}, {"do_sample": True, "temperature": "hot"}, {"temperature": "hot"}]


@pytest.mark.parametrize("said", TOLD, ids=str)
def test_what_a_class_without_a_file_leaves_out_is_told_as_of_others(said, tmp_path):
    """Its draws are left out too; all else is told alike."""
    fixed = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    followed = read_generation(tmp_path, {}, fixed, reads_source=False, has_bias=True)
    expected = {f"{name} is {value}" for name, value in said.items() if name == "do_sample"} | {*followed.not_carried}
    assert expected == {*fixed_generation(tmp_path, fixed).not_carried}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", CAPTIONERS, ids=lambda kind: kind.name)
def test_so_do_random_captioners(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)
