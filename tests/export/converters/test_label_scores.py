"""Several labels at once, and regressions: scores are those of transformers' own classification pipelines."""

import asyncio
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import transformers
from encoder_kinds import CLASSIFIERS
from foreign import change_config, converted, made_model
from picture_kinds import PICTURES
from PIL import Image
from tokenizer_directories import word_piece

from loaded import Loaded, ask
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.families.classifier import IDENTITY, SIGMOID, SOFTMAX
from weft_export.families.registry import FAMILIES
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest

TEXTS = ("a cat", "the house of a cat is here", "what is it, 10 years ago?", "no")
NAMES = ["toxic", "insult", "threat"]
MULTI, REGRESSION, SINGLE = "multi_label_classification", "regression", "single_label_classification"
CLOSE = 1e-5


def saved_bert(directory, num_labels, problem_type):
    """Save a random BERT and its tokenizer with transformers, as a user's training run does."""
    directory.mkdir()
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


def their_scores(task, directory, inputs, **options):
    """The pipeline's scores of all labels, by label, for each input."""
    pipeline = transformers.pipeline(task, model=str(directory), device="cpu")
    answers = pipeline(inputs, top_k=None if task == "text-classification" else 100, **options)
    return [{each["label"]: each["score"] for each in answer} for answer in answers]


def asked(bundle, requests):
    """The answers of a served bundle, together and alone; they are the same."""

    async def run():
        async with Loaded(bundle) as model:
            together = await asyncio.gather(*(ask(model, **each) for each in requests))
            alone = [await ask(model, **each) for each in requests]
            return together, alone

    together, alone = asyncio.run(run())
    assert [each.labels for each in alone] == [each.labels for each in together]
    return together


def scores_of(answer):
    """The scores of an answer, by label."""
    return {each.label: each.score for each in answer.labels}


KINDS = [
    (3, MULTI, common_pb2.LABEL_SCORING_SIGMOID),
    (1, MULTI, common_pb2.LABEL_SCORING_SIGMOID),
    (1, None, common_pb2.LABEL_SCORING_SIGMOID),
    (1, REGRESSION, common_pb2.LABEL_SCORING_IDENTITY),
    (3, REGRESSION, common_pb2.LABEL_SCORING_IDENTITY),
    (3, SINGLE, common_pb2.LABEL_SCORING_UNSPECIFIED),
    (3, None, common_pb2.LABEL_SCORING_UNSPECIFIED),
]


@pytest.mark.parametrize(("num_labels", "problem", "scoring"), KINDS)
def test_scores_are_those_of_the_pipeline(num_labels, problem, scoring, tmp_path):
    """For each problem_type and number of labels, a served model gives the pipeline's scores, whatever the batch."""
    saved_bert(tmp_path / "saved", num_labels, problem)
    expected = their_scores("text-classification", tmp_path / "saved", list(TEXTS))
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle, explains=False)
    # Every label, be its score as it may.
    everything = {} if scoring == common_pb2.LABEL_SCORING_IDENTITY else {"threshold": 0}
    answers = asked(bundle, [{"text": text, **everything} for text in TEXTS])
    for theirs, answer in zip(expected, answers, strict=True):
        assert scoring == answer.scoring
        assert pytest.approx(theirs, abs=CLOSE, rel=CLOSE) == scores_of(answer)
        scores = [each.score for each in answer.labels]
        assert sorted(scores, reverse=True) == scores


def test_labels_above_a_threshold_are_returned(tmp_path):
    """By default those of at least one half, else of what is asked; there may be none, and explain says of the best."""
    saved_bert(tmp_path / "saved", 3, MULTI)
    expected = their_scores("text-classification", tmp_path / "saved", list(TEXTS))
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle)

    async def run():
        async with Loaded(bundle) as model:
            for text, theirs in zip(TEXTS, expected, strict=True):
                for threshold in (None, 0.25, 0.75, 1):
                    least = 0.5 if threshold is None else threshold
                    answer = await ask(model, text=text, threshold=threshold)
                    assert {name for name, score in theirs.items() if score >= least} == set(scores_of(answer))
                assert 1 == len((await ask(model, text=text, threshold=0, top_k=1)).labels)
            nothing = await ask(model, text=TEXTS[0], threshold=1, explain=common_pb2.Explain())
            assert 0 == len(nothing.labels)
            assert [max(expected[0], key=expected[0].get)] == list(nothing.alignment.target_tokens)
            for wrong in (-0.1, 1.1, float("nan"), float("inf")):
                with pytest.raises(InvalidRequest, match=r"must be 0\.\.1") as refused:
                    await ask(model, text="a", threshold=wrong)
                assert "threshold" == refused.value.field

    asyncio.run(run())


def test_a_regression_takes_any_threshold_that_is_a_number(tmp_path):
    """All its values are returned by default, and none below a threshold, which may be negative."""
    saved_bert(tmp_path / "saved", 3, REGRESSION)
    (theirs,) = their_scores("text-classification", tmp_path / "saved", [TEXTS[0]])
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle, explains=False)

    async def run():
        async with Loaded(bundle) as model:
            assert set(theirs) == set(scores_of(await ask(model, text=TEXTS[0])))
            middle = sorted(theirs.values())[1]
            for threshold in (middle - 1e-3, middle + 1e-3):
                answer = await ask(model, text=TEXTS[0], threshold=threshold)
                assert {name for name, score in theirs.items() if score >= threshold} == set(scores_of(answer))
            with pytest.raises(InvalidRequest, match="must be a finite number"):
                await ask(model, text="a", threshold=float("nan"))

    asyncio.run(run())


@pytest.mark.parametrize("kind", PICTURES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("problem", "scoring"), [(MULTI, SIGMOID), (REGRESSION, IDENTITY), (None, SOFTMAX)])
def test_each_kind_of_picture_reads_it(kind, problem, scoring, tmp_path):
    """Each family of pictures takes the scoring that problem_type says."""
    converted_picture = picture_model(kind, tmp_path, problem)
    assert scoring == converted_picture.model.scoring


@pytest.mark.parametrize("kind", CLASSIFIERS, ids=lambda kind: kind.name)
def test_each_kind_of_text_reads_it(kind, tmp_path):
    """Each family of texts does too."""
    from foreign import made

    made(kind, 0, tmp_path)
    for problem, scoring in ((MULTI, SIGMOID), (REGRESSION, IDENTITY), (None, SOFTMAX)):
        change_config(tmp_path, problem_type=problem)
        assert scoring == converted(tmp_path).model.scoring


def picture_model(kind, directory, problem):
    """Convert a random classifier of pictures."""
    from test_pictures import made_with_processor

    made_with_processor(kind, 0, directory)
    change_config(directory, problem_type=problem)
    return converted(directory)
