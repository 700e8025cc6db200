"""A CLIP that transformers saved, tokenizer and all: labels are scored as its own pipeline scores them."""

import asyncio
import io

import numpy as np
import pytest
import torch
import transformers
from hf_models import enliven
from PIL import Image
from tokenizers.pre_tokenizers import ByteLevel

from late import Late
from loaded import Loaded, ask
from weft_export.checkpoints.picture import read_pixel_values
from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.convert import convert
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

pipelines = Late("transformers.pipelines")

SIDE = 24
# In capitals, with marks, spaces and characters that a text may be written with in two ways.
LABELS = [
    "a cat",
    "THE Dog",
    "creme\u0301 bru\u0302le\u0301e",
    "it's 12  red cars!",
    "x",
    "a house by the sea at night",
]
WORDS = ["t h", "th e</w>", "c a", "ca t</w>", "p h", "ph o", "pho t", "phot o</w>", "o f</w>", "' s</w>"]
# Neither is the model's size.
PICTURES = [
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (*each, 3), np.uint8)) for each in ((31, 52), (90, 40))
]


def tokenizer():
    """CLIP's own class, of bytes and a few words."""
    pieces = sorted(ByteLevel.alphabet())
    vocab = [*pieces, *(f"{each}</w>" for each in pieces), *(each.replace(" ", "") for each in WORDS)]
    vocab += ["<|startoftext|>", "<|endoftext|>"]
    merges = [tuple(each.split()) for each in WORDS]
    return transformers.CLIPTokenizer({token: id_ for id_, token in enumerate(vocab)}, merges, model_max_length=77)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory that a model and its processor are saved to."""
    directory = tmp_path_factory.mktemp("clip") / "saved"
    of_texts = tokenizer()
    common = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
    ids = {"bos_token_id": of_texts.bos_token_id, "eos_token_id": of_texts.eos_token_id, "pad_token_id": 1}
    transformers.set_seed(0)
    model = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config=common | ids | {"vocab_size": len(of_texts), "max_position_embeddings": 77},
            vision_config=common | {"image_size": SIDE, "patch_size": 8},
            projection_dim=12,
        )
    ).eval()
    enliven(model, 2.0)
    model.logit_scale.data.fill_(1.5)
    model.save_pretrained(directory)
    of_pictures = transformers.CLIPImageProcessor(
        size={"shortest_edge": SIDE + 4}, crop_size={"height": SIDE, "width": SIDE}
    )
    transformers.CLIPProcessor(of_pictures, of_texts).save_pretrained(directory)
    return directory


def file_of(picture):
    """A PNG of it."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return common_pb2.Image(data=file.getvalue())


async def served(bundle, **request):
    """What a server answers to each picture: label and score, best first."""
    async with Loaded(bundle, slots=2) as model:
        answers = [await ask(model, image=file_of(each), **request) for each in PICTURES]
    return [[(label.label, label.score) for label in answer.labels] for answer in answers]


TEXTS = ["This is a photo of {}.", "{} in the fog"]


def piped(saved):
    """What the pipeline says of each picture, for each of TEXTS, best first; and scores [texts, pictures, labels]."""
    pipeline = pipelines.pipeline("zero-shot-image-classification", model=str(saved))
    found = {}
    for text in TEXTS:
        answers = [pipeline(each, candidate_labels=LABELS, hypothesis_template=text) for each in PICTURES]
        found[text] = [[(each["label"], pytest.approx(each["score"], abs=1e-4)) for each in one] for one in answers]
    scores = np.array(
        [[[score.expected for _, score in sorted(one, key=str)] for one in each] for each in found.values()]
    )
    return found, scores


@pytest.fixture(scope="module")
def expected(saved):
    """What the pipeline says: label and score."""
    found, scores = piped(saved)
    # Otherwise nothing is proved: labels, pictures and texts differ by more.
    assert np.ptp(scores, axis=2).min() > 0.01
    assert np.ptp(scores, axis=1).max() > 0.01
    assert np.ptp(scores, axis=0).max() > 0.01
    return found


def test_labels_are_scored_as_the_pipeline_scores_them(saved, expected):
    """By the directory's own tokenizer and pixels, as its bundle has them."""
    checkpoint = convert(saved, ExportOptions()).checkpoint
    name = checkpoint.text.source_tokenizer
    tokenizer = tokenizer_of(name, checkpoint.files[name])
    pixels = np.stack([read_pixel_values(file_of(each).data, checkpoint.image) for each in PICTURES])
    for text, answers in expected.items():
        ids = [tokenizer.encode(text.replace("{}", label)).ids for label in LABELS]
        lengths = torch.tensor([len(each) for each in ids], dtype=torch.int32)
        rows = torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in ids], batch_first=True)
        with torch.inference_mode():
            scores = checkpoint.model(torch.from_numpy(pixels), rows, lengths).softmax(dim=-1)
        found = [sorted(zip(LABELS, each, strict=True), key=lambda pair: -pair[1]) for each in scores.tolist()]
        assert answers == found


@pytest.mark.long
def test_so_they_are_served(saved, expected, tmp_path):
    """With a request's own text around them, and the usual one where it says none."""
    bundle = tmp_path / "m" / "1"
    export_checkpoint(saved, bundle)
    for text, answers in zip(("", TEXTS[1]), expected.values(), strict=True):
        request = {"labels": LABELS, "label_text": text, "top_k": len(LABELS)}
        assert answers == asyncio.run(served(bundle, **request))


@pytest.mark.long
@pytest.mark.parametrize("text", TEXTS)
def test_so_are_labels_that_stay(text, saved, expected, tmp_path):
    """With `--labels FILE`, and `--label-text`."""
    labels, bundle = tmp_path / "labels.txt", tmp_path / "m" / "1"
    labels.write_text("\n".join(LABELS))
    export_checkpoint(saved, bundle, ExportOptions(labels=labels, label_text=text))
    assert expected[text] == asyncio.run(served(bundle, top_k=len(LABELS)))
