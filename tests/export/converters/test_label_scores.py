"""Several labels at once, and regressions: scores are those of transformers' own classification pipelines."""

import asyncio
import io

import pytest
import torch
import transformers
from encoder_kinds import CLASSIFIERS
from hf_models import change_config, converted, made, made_model
from picture_kinds import PICTURES
from PIL import Image
from test_pictures import made_with_processor
from tokenizer_directories import word_piece

from loaded import Loaded, ask
from weft_export.checkpoints.made_media import made_picture
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.families.classifier import IDENTITY, SIGMOID, SOFTMAX
from weft_export.graphs.views import scores_of
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import InvalidRequest

TEXTS = ("a cat", "the house of a cat is here", "what is it, 10 years ago?", "no")
NAMES = ["toxic", "insult", "threat"]
MULTI, REGRESSION, SINGLE = "multi_label_classification", "regression", "single_label_classification"
CLOSE = 1e-5


def saved_bert(directory, num_labels, problem_type):
    """Save a random BERT and its tokenizer with transformers, as a user's training run does."""
    directory.mkdir(exist_ok=True)
    (directory / "vocab.txt").write_text("\n".join(word_piece()))
    tokenizer = transformers.BertTokenizer.from_pretrained(directory)
    transformers.set_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=48,
        id2label=dict(enumerate(NAMES[:num_labels])),
        problem_type=problem_type,
    )
    made_model(transformers.BertForSequenceClassification, config, directory)
    tokenizer.save_pretrained(directory)


def their_scores(directory, texts):
    """What the pipeline scores each label, for each text."""
    pipeline = transformers.pipeline("text-classification", model=str(directory), device="cpu")
    return [{each["label"]: each["score"] for each in answer} for answer in pipeline(list(texts), top_k=None)]


def by_label(answer):
    """Return the scores of an answer."""
    return {each.label: each.score for each in answer.labels}


KINDS = [
    (3, MULTI, SIGMOID),
    (1, MULTI, SIGMOID),
    (1, None, SIGMOID),
    (1, REGRESSION, IDENTITY),
    (3, REGRESSION, IDENTITY),
    (3, SINGLE, SOFTMAX),
    (3, None, SOFTMAX),
]


@pytest.mark.parametrize(("num_labels", "problem", "scoring"), KINDS)
def test_scores_are_those_of_the_pipeline(num_labels, problem, scoring, tmp_path):
    """For each problem_type and number of labels."""
    saved_bert(tmp_path, num_labels, problem)
    ours = converted(tmp_path).model
    assert scoring == ours.scoring
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text, theirs in zip(TEXTS, their_scores(tmp_path, TEXTS), strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            actual = scores_of(ours(ids, torch.tensor([ids.shape[1]], dtype=torch.int32)), scoring)[0].tolist()
        assert pytest.approx(theirs, abs=CLOSE, rel=CLOSE) == dict(zip(NAMES, actual, strict=False))


def test_several_labels_are_served(tmp_path):
    """Labels are the pipeline's of at least one half, or of the threshold asked for, whatever the batch.

    There may be none, and explain then says of the best.
    """
    saved_bert(tmp_path / "saved", 3, MULTI)
    expected = their_scores(tmp_path / "saved", TEXTS)
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle)

    async def run():
        async with Loaded(bundle) as model:
            together = await asyncio.gather(*(ask(model, text=text, threshold=0) for text in TEXTS))
            for text, theirs, beside in zip(TEXTS, expected, together, strict=True):
                alone = await ask(model, text=text, threshold=0)
                assert beside.labels == alone.labels
                assert common_pb2.LABEL_SCORING_SIGMOID == alone.scoring
                assert pytest.approx(theirs, abs=CLOSE) == by_label(alone)
                scores = [each.score for each in alone.labels]
                assert sorted(scores, reverse=True) == scores
                for threshold in (None, 0.25, 0.75, 1):
                    least = 0.5 if threshold is None else threshold
                    answer = await ask(model, text=text, threshold=threshold)
                    assert {name for name, score in theirs.items() if score >= least} == set(by_label(answer))
                assert 1 == len((await ask(model, text=text, threshold=0, top_k=1)).labels)
            nothing = await ask(model, text=TEXTS[0], threshold=1, explain=common_pb2.Explain())
            assert 0 == len(nothing.labels)
            assert [max(expected[0], key=expected[0].get)] == list(nothing.alignment.target_tokens)
            for wrong in (-0.1, 1.1, float("nan"), float("inf")):
                with pytest.raises(InvalidRequest, match=r"must be 0\.\.1") as refused:
                    await ask(model, text="a", threshold=wrong)
                assert "threshold" == refused.value.field

    asyncio.run(run())


def test_a_regression_is_served(tmp_path):
    """Its values are the pipeline's, all by default, and none below a threshold, which is any number."""
    saved_bert(tmp_path / "saved", 3, REGRESSION)
    (theirs,) = their_scores(tmp_path / "saved", TEXTS[:1])
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle, ExportOptions(no_explain=True))

    async def run():
        async with Loaded(bundle) as model:
            answer = await ask(model, text=TEXTS[0])
            assert common_pb2.LABEL_SCORING_IDENTITY == answer.scoring
            assert pytest.approx(theirs, abs=CLOSE, rel=CLOSE) == by_label(answer)
            middle = sorted(theirs.values())[1]
            for threshold in (middle - 1e-3, middle + 1e-3):
                answer = await ask(model, text=TEXTS[0], threshold=threshold)
                assert {name for name, score in theirs.items() if score >= threshold} == set(by_label(answer))
            with pytest.raises(InvalidRequest, match="must be a finite number"):
                await ask(model, text="a", threshold=float("nan"))

    asyncio.run(run())


def test_several_labels_of_a_picture_are_served(tmp_path):
    """Labels of a ViT are those of the image-classification pipeline, of at least one half."""
    directory = tmp_path / "saved"
    transformers.set_seed(1)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        image_size=32,
        patch_size=8,
        id2label=dict(enumerate(NAMES)),
        problem_type=MULTI,
    )
    made_model(transformers.ViTForImageClassification, config, directory)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(directory)
    picture = made_picture(bundle_pb2.ImageSpec(channels=3, height=40, width=56))
    pipeline = transformers.pipeline("image-classification", model=str(directory), device="cpu")
    theirs = {each["label"]: each["score"] for each in pipeline(Image.open(io.BytesIO(picture)), top_k=3)}
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(directory, bundle, ExportOptions(no_explain=True))

    async def run():
        async with Loaded(bundle) as model:
            image = common_pb2.Image(data=picture)
            # Their processor resizes with torchvision, ours with Pillow.
            assert pytest.approx(theirs, abs=1e-2) == by_label(await ask(model, image=image, threshold=0))
            held = {label for label, score in theirs.items() if score >= 0.5}
            assert held == set(by_label(await ask(model, image=image)))

    asyncio.run(run())


@pytest.mark.parametrize("kind", PICTURES, ids=lambda kind: kind.name)
def test_each_kind_of_picture_reads_it(kind, tmp_path):
    """Each family of pictures takes the scoring that problem_type says."""
    made_with_processor(kind, 0, tmp_path)
    change_config(tmp_path, problem_type=MULTI)
    assert SIGMOID == converted(tmp_path).model.scoring


@pytest.mark.parametrize("kind", CLASSIFIERS, ids=lambda kind: kind.name)
def test_each_kind_of_text_reads_it(kind, tmp_path):
    """Each family of texts does too."""
    made(kind, 0, tmp_path)
    change_config(tmp_path, problem_type=REGRESSION)
    assert IDENTITY == converted(tmp_path).model.scoring


def test_another_problem_is_refused(tmp_path):
    """Its name is told, and what is known."""
    saved_bert(tmp_path, 3, None)
    change_config(tmp_path, problem_type="ranking")
    with pytest.raises(CheckpointError, match="problem_type is 'ranking': it is not supported; known are multi_label"):
        converted(tmp_path)
