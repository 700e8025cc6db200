"""Cross-encoders of others: the score of two texts is that of transformers, in torch and as it is served."""

import asyncio
import json

import pytest
import tokenizers
import torch
from encoder_kinds import CLASSIFIERS
from hf_models import LOGITS, Kind, change_config, converted, furthest, made
from tokenizer_directories import OLDER, config_of, reference, write

from loaded import Loaded, ask
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest

PAIRS = [("a cat", "the house of a cat is here"), ("what is it", "x"), ("def f(x): return x + 1", "print(cat)")]
# To RoBERTa, token 1 is padding. OTHER stands in none of the texts.
SEPARATOR, OTHER = 1, 5
IDENTITY = "torch.nn.modules.linear.Identity"


def judge(kind):
    """A kind with one label."""

    def draw(rng):
        drawn = kind.draw(rng) | {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        return drawn | ({"type_vocab_size": 2} if drawn.get("type_vocab_size") else {})

    return Kind(kind.name, kind.architecture, draw)


def with_segments(kind):
    """A kind with two segments."""
    return Kind(kind.name, kind.architecture, lambda rng: kind.draw(rng) | {"type_vocab_size": 2})


JUDGES = [judge(kind) for kind in CLASSIFIERS]
# The directories of a tokenizer's class that fit a kind of model.
CLASSES = {
    "albert": "albert",
    "bert": "bert",
    "camembert": "camembert",
    "debertav2": "deberta",
    "distilbert": "distilbert",
    "electra": "electra",
    "mpnet": "mpnet",
    "roberta": "roberta",
    "xlmroberta": "xlm-roberta",
}
WITHOUT_SEGMENTS = {"camembert", "roberta", "xlmroberta"}


def with_many_words(kind):
    """A kind whose vocabulary has room for a real one, and segments only if the class numbers them."""
    more = {"vocab_size": 2000} | ({"type_vocab_size": 1} if kind.name in WITHOUT_SEGMENTS else {})
    return Kind(kind.name, kind.architecture, lambda rng: kind.draw(rng) | more)


OF_CLASSES = [with_many_words(kind) for kind in JUDGES if kind.name in CLASSES]


def joining(directory, template="$A <end> $B:1 <end>:1", separator=SEPARATOR):
    """Let the tokenizer join two texts as BERT's does, by one token between them; return it."""
    path = directory / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <end>", pair=template, special_tokens=[("<end>", separator)]
    )
    tokenizer.save(str(path))
    names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | names))
    return tokenizer


def their_logits(theirs, kind, encoding):
    """What transformers says of two texts."""
    segments = {}
    if getattr(theirs.config, "type_vocab_size", 0) > 1:
        segments = {"token_type_ids": torch.tensor([encoding.type_ids])}
    return theirs(input_ids=torch.tensor([encoding.ids]), **segments).logits[0]


@pytest.mark.parametrize("kind", JUDGES, ids=lambda kind: kind.name)
def test_two_texts_are_judged_as_transformers_judges_them(kind, tmp_path):
    """Logits within 1e-4 for pairs of other lengths in one batch, with the second segment where a model has two."""
    theirs = made(kind, 1, tmp_path)
    tokenizer = joining(tmp_path, separator=OTHER)
    ours = converted(tmp_path)
    encodings = [tokenizer.encode(*pair) for pair in PAIRS]
    lengths = torch.tensor([len(each.ids) for each in encodings], dtype=torch.int32)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(each.ids) for each in encodings], batch_first=True)
    with torch.inference_mode():
        for row, encoding in zip(ours.model(ids, lengths), encodings, strict=True):
            assert LOGITS >= furthest(row, their_logits(theirs, kind, encoding))
    assert OTHER == ours.text.separator_id


@pytest.mark.parametrize("kind", OF_CLASSES, ids=lambda kind: kind.name)
def test_two_texts_are_joined_as_the_tokenizers_class_joins_them(kind, tmp_path):
    """Logits are those of transformers for a directory with its class's files, and without tokenizer.json."""
    theirs = made(kind, 1, tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    _, options, files = OLDER[CLASSES[kind.name]]()
    write(tmp_path, config_of(tmp_path)["model_type"], options, files)
    theirs.save_pretrained(tmp_path)  # its config.json again
    tokenizer, ours = reference(tmp_path), converted(tmp_path)
    assert tokenizer.sep_token_id == ours.text.separator_id
    for pair in PAIRS:
        given = tokenizer(*pair, return_tensors="pt")
        ids = given["input_ids"]
        with torch.inference_mode():
            row = ours.model(ids, torch.tensor([ids.shape[1]], dtype=torch.int32))
            assert LOGITS >= furthest(row[0], theirs(**given).logits[0])


def test_pairs_need_a_token_between_two_texts(tmp_path):
    """Chosen for a tokenizer that puts none, they are refused, and not forgotten."""
    (kind,) = (each for each in CLASSIFIERS if each.name == "distilbert")
    made(kind, 1, tmp_path)
    with pytest.raises(CheckpointError, match="it takes two texts, and its tokenizer puts no token between them"):
        converted(tmp_path, pairs=True)


@pytest.mark.parametrize("identity", [False, True])
def test_a_judge_is_served(tmp_path, identity):
    """Its scores are the sigmoid, or the logit where the checkpoint says so; alone and together with the same bits."""
    kind = JUDGES[0]
    theirs = made(kind, 1, tmp_path / "judge")
    tokenizer = joining(tmp_path / "judge")
    if identity:
        change_config(tmp_path / "judge", sentence_transformers={"activation_fn": IDENTITY, "version": "5.0.0"})
    bundle = tmp_path / "models" / "judge" / "1"
    export_checkpoint(tmp_path / "judge", bundle, ExportOptions(no_explain=bool(identity), golden="a cat"))

    async def run():
        async with Loaded(bundle) as model:
            requests = [{"text": text, "text_pair": other} for text, other in PAIRS]
            together = await asyncio.gather(*(ask(model, **each) for each in requests))
            alone = [await ask(model, **each) for each in requests]
            explained = None if identity else await ask(model, **requests[0], explain=common_pb2.Explain())
            for wrong, field in (
                ({"text": "a <end> b", "text_pair": "c"}, "text"),
                ({"text": "a", "text_pair": "b<end>"}, "text_pair"),
                ({"text": "a <end> b"}, "text"),
                ({"text": "a", "text_pair": " "}, "text_pair"),
                ({"text": "a" * 60, "text_pair": "b" * 60}, "text_pair"),
                ({"token_ids": {"ids": [5]}, "text_pair": "b"}, "text_pair"),
            ):
                with pytest.raises(InvalidRequest) as refused:
                    await ask(model, **wrong)
                assert field == refused.value.field
            return together, alone, explained

    together, alone, explained = asyncio.run(run())
    for pair, answer, lone in zip(PAIRS, together, alone, strict=True):
        encoding = tokenizer.encode(*pair)
        with torch.inference_mode():
            expected = float(their_logits(theirs, kind, encoding))
        score = expected if identity else 1 / (1 + 2.718281828459045**-expected)
        assert pytest.approx(score, abs=1e-4) == answer.labels[0].score
        assert answer.labels == lone.labels
        assert len(encoding.ids) == answer.usage.input_tokens
    assert identity or pytest.approx(1, abs=1e-5) == sum(explained.alignment.weights)


def test_several_labels_judge_two_texts_where_it_is_said(tmp_path):
    """Logits and labels are those of transformers, and scores sum to 1. Unsaid, such a model reads one text."""
    kind = CLASSIFIERS[0]
    theirs = made(with_segments(kind), 1, tmp_path)
    tokenizer = joining(tmp_path, separator=OTHER)
    assert not converted(tmp_path).text.HasField("separator_id")
    ours = converted(tmp_path, pairs=True)
    assert (OTHER, "softmax", 3) == (ours.text.separator_id, ours.model.scoring, len(ours.labels))
    for pair in PAIRS:
        encoding = tokenizer.encode(*pair)
        with torch.inference_mode():
            row = ours.model(torch.tensor([encoding.ids]), torch.tensor([len(encoding.ids)], dtype=torch.int32))
            assert LOGITS >= furthest(row[0], their_logits(theirs, kind, encoding))
    change_config(tmp_path, architectures=["BertForTokenClassification"])
    with pytest.raises(CheckpointError, match="pairs are chosen for a classifier of texts, not for BertForTokenC"):
        converted(tmp_path, pairs=True)


def test_segments_that_no_token_divides_are_refused(tmp_path):
    """A model with segments would read the second text as the first."""
    made(JUDGES[0], 1, tmp_path)
    joining(tmp_path, "$A:0 $B:1 <end>:1")
    with pytest.raises(CheckpointError, match="does not number two texts as segments that one token divides"):
        converted(tmp_path)


def test_another_activation_is_refused(tmp_path):
    """Its name is told."""
    made(JUDGES[0], 1, tmp_path)
    joining(tmp_path)
    change_config(tmp_path, sbert_ce_default_activation_function="torch.nn.modules.activation.Tanh")
    with pytest.raises(
        CheckpointError, match=r"activation_fn of .* is '.*Tanh'; torch's Sigmoid and Identity are supported"
    ):
        converted(tmp_path)
