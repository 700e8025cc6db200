"""Translators of many languages: a directory with its tokenizer becomes a checkpoint that translates as theirs does."""

import json

import pytest
import torch
import transformers
from hf_models import converted, greedy, their_greedy
from tokenizer_directories import OLDER, reference, write

from weft_export.checkpoints.framing import frame_of
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_export.verification.golden import GoldenRequest
from weft_proto.v1 import bundle_pb2

TEXTS = ["The house is small.", "a", "Is there a garden behind it? Yes, there is."]
NEW_TOKENS = 24


# For each kind of tokenizer: the class of its models, and the start of their answers.
KINDS = {
    "nllb": ("M2M100ForConditionalGeneration", "</s>"),
    "mbart": ("MBartForConditionalGeneration", "ro_RO"),
    "mbart50": ("MBartForConditionalGeneration", "</s>"),
}


def translator(directory, kind="nllb", **generation):
    """Write a random model with a tokenizer of its own, and return it with that tokenizer."""
    model_type, tokenizer_config, files = OLDER[kind]()
    write(directory, model_type, tokenizer_config, files)
    tokenizer = reference(directory)
    name, start = KINDS[kind]
    model_class = getattr(transformers, name)
    sizes = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
    ids = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
    ids["decoder_start_token_id"] = tokenizer.convert_tokens_to_ids(start)
    config = model_class.config_class(vocab_size=len(tokenizer), scale_embedding=True, **sizes, **heads, **ids)
    torch.manual_seed(3)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    model.generation_config.update(**generation)
    model.save_pretrained(directory)
    return model, tokenizer


def check(theirs, tokenizer, ours, frame, **settings):
    """Expect the ids of generate() for each text: those of its source, and greedy ones to the end that is forced."""
    asked, expected = [], []
    for text in TEXTS:
        ids = encode_source(ours, read_tokenizer(ours, ours.text.source_tokenizer), text, frame)
        assert tokenizer(text).input_ids == ids
        inputs = {"input_ids": torch.tensor([ids])}
        # generate() counts a language that is forced as a new token.
        num_fed = len(frame.prefix)
        whole = their_greedy(theirs, inputs, NEW_TOKENS + num_fed, **settings)
        assert list(frame.prefix) == whole[:num_fed]
        expected.append(whole[num_fed:])
        asked.append(Row(torch.tensor(ids), [ours.text.start_id, *frame.prefix]))

    assert expected == greedy(ours, asked, NEW_TOKENS)
    assert {2} == {tokens[-1] for tokens in expected}


@pytest.mark.parametrize(
    ("kind", "source", "code", "target", "forced"),
    [
        ("nllb", "en", "eng_Latn", "fr", "fra_Latn"),
        ("nllb", "zh-Hant", "zho_Hant", "ace-Arab", "ace_Arab"),
        ("mbart50", "en", "en_XX", "ro", "ro_RO"),
    ],
)
def test_each_language_is_told_as_transformers_tells_it(tmp_path, kind, source, code, target, forced):
    """The same ids for a text, and the same greedy tokens behind the language's own, to the end that is forced."""
    theirs, tokenizer = translator(tmp_path, kind, forced_eos_token_id=2)
    ours = converted(tmp_path)
    tokenizer.src_lang = code
    id_ = tokenizer.convert_tokens_to_ids(forced)
    check(theirs, tokenizer, ours, frame_of(ours, source, target), forced_bos_token_id=id_)


@pytest.mark.parametrize(("source", "code"), [("en", "en_XX"), ("de", "de_DE")])
def test_a_language_that_is_the_start_is_told_once(tmp_path, source, code):
    """A model of mBART's kind writes the one that its start is, and generate() feeds it as the start alone."""
    theirs, tokenizer = translator(tmp_path, "mbart", forced_eos_token_id=2)
    ours = converted(tmp_path)
    tokenizer.src_lang = code

    assert ["ro"] == list(ours.text.target_languages)
    assert 25 == len(ours.text.source_languages)
    check(theirs, tokenizer, ours, frame_of(ours, source, ""))


def test_a_model_that_begins_with_any_language_and_says_no_start_is_refused(tmp_path):
    """generate() would begin with the token of no language."""
    translator(tmp_path, "mbart")
    for name in ("config.json", "generation_config.json"):
        path = tmp_path / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder_start_token_id": None}))

    with pytest.raises(CheckpointError, match="decoder_start_token_id, and an answer of this model begins with its"):
        converted(tmp_path)


def test_a_golden_request_names_languages(tmp_path):
    """Several are listed, so one of each is named: from English, in which the golden text is."""
    translator(tmp_path)
    ours = converted(tmp_path)

    assert ("en", "ace-Arab") == (ours.golden.source_language, ours.golden.target_language)
    assert ours.text.max_total_tokens - 1 == ours.text.max_new_tokens
    assert GoldenRequest(ours, bundle_pb2.PRECISION_FP32).answer().token_ids


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"max_new_tokens": 20, "min_new_tokens": 5}, (19, 4)),
        ({"max_length": 30, "min_length": 10}, (28, 8)),
        ({"min_length": 1}, (63, 0)),
    ],
)
def test_lengths_of_a_checkpoint_are_a_requests_default(tmp_path, generation, expected):
    """generate() counts the language as a new token, and in a length the start token too; here neither is produced."""
    translator(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | generation))
    ours = converted(tmp_path)

    assert expected == (ours.max_new_tokens, ours.min_new_tokens)


def test_a_language_that_is_forced_is_told(tmp_path):
    """generate() writes it where nothing else is asked for. A bundle has no such default, so a note names it."""
    _, tokenizer = translator(tmp_path)
    path = tmp_path / "generation_config.json"
    for token, named in ("fra_Latn", "fr"), ("</s>", "none of its languages"):
        id_ = tokenizer.convert_tokens_to_ids(token)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"forced_bos_token_id": id_}))
        notes = convert(tmp_path, ExportOptions(), filled=False).notes
        assert [f"forced_bos_token_id is {id_}, {named}:"] == [
            note.split(" generate()")[0] for note in notes if "forced_bos" in note
        ]
