"""SigLIP as transformers saved it: both towers are its own, and labels are scored as its pipeline scores them."""

import asyncio
import json

import numpy as np
import pytest
import torch
import transformers
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, made, made_model
from picture_kinds import SIGLIP_TEXTS_ALONE, WHOLE_SIGLIP
from test_zero_shot_pipeline import LABELS, PICTURES, SIDE, TEXTS, file_of, piped, served
from tokenizer_directories import OLDER, reference, write

from weft_export.checkpoints.picture import read_pixel_values
from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.verification.session import open_session
from weft_proto.v1 import bundle_pb2, common_pb2

NUM_TOKENS = 64
WORDS = ("a cat", "It's 12 RED cars!", "", "the house by the sea, and a garden " * 2)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """SigLIP's own class, as it is saved."""
    return reference(write(tmp_path_factory.mktemp("tokenizer"), *OLDER["siglip"]()))


def write_model(kind, seed, directory, tokenizer, names=("input_ids",)):
    """Write a random SigLIP with its processor's files; return it."""
    theirs = made(with_words(kind, len(tokenizer)), seed, directory)
    for path in directory.glob("tokenizer*"):
        path.unlink()
    vision = getattr(theirs.config, "vision_config", None)
    save_processor(directory, tokenizer, vision.image_size if vision else 8, names)
    return theirs


def save_processor(directory, tokenizer, side, names=("input_ids",)):
    """Save what a model is called by. Whether a tokenizer says which tokens are padding stands in its file alone."""
    of_pictures = transformers.SiglipImageProcessorPil(size={"height": side, "width": side})
    transformers.SiglipProcessor(of_pictures, tokenizer).save_pretrained(directory)
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_input_names": names}))


def with_words(kind, vocab_size):
    """The kind with as many words as a tokenizer has, and three colours."""

    def draw(rng):
        config = kind.draw(rng)
        texts = config.get("text_config", config)
        texts["vocab_size"] = vocab_size
        if "vision_config" in config:
            config["vision_config"]["num_channels"] = 3
        return config

    return type(kind)(kind.name, kind.architecture, draw, kind.gain)


def asked(tokenizer):
    """What the pipeline makes of texts, and the same as a server gives it to a graph: right-padded, and lengths."""
    theirs = tokenizer(list(WORDS), padding="max_length", max_length=NUM_TOKENS, truncation=True, return_tensors="pt")
    rows = [torch.tensor(tokenizer(text).input_ids) for text in WORDS]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    return theirs, torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths


def check(seed, directory, tokenizer):
    """Hold one random SigLIP to transformers: whether what texts are filled up with is seen is the tokenizer's word."""
    names = ("input_ids", "attention_mask")[: 1 + seed % 2]
    theirs = write_model(WHOLE_SIGLIP, seed, directory, tokenizer, names)
    ours = converted(directory)
    texts, padded, lengths = asked(reference(directory))
    assert set(names) == set(texts)
    vision = theirs.config.vision_config
    pixels = torch.randn(2, 3, vision.image_size, vision.image_size)
    with torch.inference_mode():
        expected = theirs(pixel_values=pixels, **texts)
        assert LOGITS >= furthest(ours.model.pictures(pixels), expected.image_embeds)
        assert LOGITS >= furthest(ours.model.texts(padded, lengths), expected.text_embeds)
        assert LOGITS >= furthest(ours.model(pixels, padded, lengths), expected.logits_per_image)
    assert common_pb2.TASK_MATCH == ours.task


@pytest.mark.parametrize("seed", [0, 1])
def test_vectors_and_logits_are_those_of_transformers(seed, tmp_path, tokenizer):
    """Within 1e-4, whether padding is seen, as files of Google say, or not."""
    check(seed, tmp_path, tokenizer)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, NUM_LONG + 2))
def test_so_they_are_for_random_models(seed, tmp_path, tokenizer):
    """The same law for twenty random configurations."""
    check(seed, tmp_path, tokenizer)


@pytest.mark.parametrize(
    "names", [("input_ids",), pytest.param(("input_ids", "attention_mask"), marks=pytest.mark.long)], ids=len
)
def test_the_text_tower_alone_embeds(names, tmp_path, tokenizer):
    """As SiglipTextModel is saved; its graph keeps rows apart, whatever is behind their ends."""
    theirs = write_model(SIGLIP_TEXTS_ALONE, 0, tmp_path, tokenizer, names)
    ours = converted(tmp_path)
    texts, padded, lengths = asked(reference(tmp_path))
    graph = graphs_of(ours, bundle_pb2.PRECISION_FP32)[0]
    write_graph(graph, tmp_path)
    session = open_session(tmp_path / graph.file_name)

    def run(rows, ids=padded):
        return session.run(None, {"input_ids": ids[rows].numpy(), "lengths": lengths[rows].numpy()})[0]

    together = run([0, 1, 2, 3])
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(theirs(**texts).pooler_output, dim=-1)
    assert LOGITS >= furthest(torch.tensor(together), expected)
    for rows in ([3, 2, 1, 0], [1, 3], [0], [1], [2], [3]):
        assert np.array_equal(together[rows], run(rows))
    behind = torch.arange(padded.shape[1]) >= lengths[:, None]
    assert np.array_equal(together, run([0, 1, 2, 3], torch.where(behind, 7, padded)))
    assert common_pb2.TASK_EMBED_TEXT == ours.task


@pytest.mark.parametrize("names", [("input_ids",), ("input_ids", "attention_mask"), ()], ids=len)
def test_a_text_attends_to_what_it_sees(names, tmp_path, tokenizer):
    """What it is filled up with takes no part where it is hidden, and most of it where it is seen."""
    write_model(SIGLIP_TEXTS_ALONE, 0, tmp_path, tokenizer, names)
    model = converted(tmp_path).model
    ids = torch.tensor([[3, 4, 5]])
    with torch.inference_mode():
        masses = [model.explain(torch.tensor(layer), torch.tensor(0), ids)[1].item() for layer in range(2)]
    assert ["attention_mask" in names] * 2 == [mass == pytest.approx(1) for mass in masses]


def test_another_length_is_refused(tmp_path, tokenizer):
    """Texts are filled up to 64 tokens; another number is another model."""
    write_model(SIGLIP_TEXTS_ALONE, 0, tmp_path, tokenizer)
    with pytest.raises(CheckpointError, match="a text is read at its last place here: --pooling mean is not for it"):
        converted(tmp_path, pooling="mean")
    with pytest.raises(CheckpointError, match="--max-tokens is 30: SigLIP's texts are filled up to 64 tokens"):
        converted(tmp_path, max_tokens=30)
    said = tmp_path / "tokenizer_config.json"
    given = json.loads(said.read_text())
    said.write_text(json.dumps(given | {"model_max_length": 77}))
    with pytest.raises(CheckpointError, match="model_max_length is 77: SigLIP's texts are filled up to 64 tokens"):
        converted(tmp_path)
    change_config(tmp_path, max_position_embeddings=40)
    said.write_text(json.dumps(given))
    with pytest.raises(CheckpointError, match="model_max_length is 64: SigLIP's texts are filled up to 40 tokens"):
        converted(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tokenizer):
    """The directory that a model and its processor are saved to."""
    directory = tmp_path_factory.mktemp("siglip") / "saved"
    common = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
    config = transformers.SiglipConfig(
        text_config=common | {"vocab_size": len(tokenizer)},
        vision_config=common | {"image_size": SIDE, "patch_size": 7},
    )
    transformers.set_seed(0)
    model = made_model(transformers.SiglipModel, config, directory)
    model.logit_scale.data.fill_(1.5)
    model.logit_bias.data.fill_(-0.7)
    model.save_pretrained(directory)
    save_processor(directory, tokenizer, SIDE)
    return directory


@pytest.fixture(scope="module")
def expected(saved):
    """What the pipeline says: label and score."""
    found, scores = piped(saved)
    # Otherwise nothing is proved: labels, pictures and texts differ, and probabilities are no softmax.
    assert min(np.ptp(scores, axis=axis).max() for axis in (0, 1, 2)) > 0.01
    assert np.abs(scores.sum(axis=2) - 1).min() > 0.05
    return found


def test_labels_are_scored_as_the_pipeline_scores_them(saved, expected):
    """Each by itself, by the directory's own tokenizer and pixels, as its bundle has them."""
    checkpoint = converted(saved)
    name = checkpoint.text.source_tokenizer
    own = tokenizer_of(name, checkpoint.files[name])
    pixels = np.stack([read_pixel_values(file_of(each).data, checkpoint.image) for each in PICTURES])
    for text, answers in expected.items():
        ids = [torch.tensor(own.encode(text.replace("{}", label)).ids) for label in LABELS]
        lengths = torch.tensor([len(each) for each in ids], dtype=torch.int32)
        rows = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        with torch.inference_mode():
            scores = checkpoint.model(torch.from_numpy(pixels), rows, lengths).sigmoid()
        found = [sorted(zip(LABELS, each, strict=True), key=lambda pair: -pair[1]) for each in scores.tolist()]
        assert answers == found


@pytest.mark.long
def test_so_they_are_served(saved, expected, tmp_path):
    """With a request's own text around them, and the usual one where it says none."""
    bundle = tmp_path / "m" / "1"
    report = export_checkpoint(saved, bundle)
    assert common_pb2.LABEL_SCORING_SIGMOID == report.manifest.scoring
    for text, answers in zip(("", TEXTS[1]), expected.values(), strict=True):
        request = {"labels": LABELS, "label_text": text, "top_k": len(LABELS)}
        assert answers == asyncio.run(served(bundle, **request))


def pieces_of(name, **settings):
    """A tokenizer of SigLIP 2, as one of the two classes that its directories name is saved."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!'"
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *letters, "at", "cat", "re", "red"]
    merges = [("a", "t"), ("c", "at"), ("r", "e"), ("re", "d")]
    vocab = {word: index for index, word in enumerate(words)}
    return getattr(transformers, name)(vocab=vocab, merges=merges, **settings)


@pytest.mark.parametrize("name", ["GemmaTokenizer", "Siglip2Tokenizer"])
def test_a_siglip_2_of_pictures_of_one_size_is_a_siglip(name, tmp_path):
    """With its own tokenizers, which fill up on the right if a file says so. One makes texts lower case."""
    theirs = write_model(WHOLE_SIGLIP, 0, tmp_path, pieces_of(name, padding_side="right"))
    ours = converted(tmp_path)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts, padded, lengths = asked(their_tokenizer)
    own = tokenizer_of(ours.text.source_tokenizer, ours.files[ours.text.source_tokenizer])
    assert [their_tokenizer(text).input_ids for text in WORDS] == [own.encode(text).ids for text in WORDS]
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(theirs.get_text_features(**texts).pooler_output, dim=-1)
        assert LOGITS >= furthest(ours.model.texts(padded.long(), lengths), expected)


@pytest.mark.parametrize("name", ["GemmaTokenizer", "Siglip2Tokenizer", "said"])
def test_texts_that_are_filled_up_on_the_left_are_refused(name, tmp_path):
    """What stands at the last place, which is read, is another token then. These classes do it unless a file says."""
    said = {"padding_side": "left"} if name == "said" else {}
    write_model(WHOLE_SIGLIP, 0, tmp_path, pieces_of("GemmaTokenizer" if said else name))
    path = tmp_path / "tokenizer_config.json"
    given = {key: value for key, value in json.loads(path.read_text()).items() if key != "padding_side"}
    path.write_text(json.dumps(given | said))
    with pytest.raises(CheckpointError, match="padding_side is 'left'"):
        converted(tmp_path)
