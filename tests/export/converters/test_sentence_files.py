"""What sentence-transformers saved is answered as it answers, or refused or noted by the name of the key."""

import ast
import inspect
import json
import shutil
import textwrap
import warnings

import pytest
import torch
from config_changes import ABSENT, changed, others
from encoder_kinds import EMBEDDERS
from hf_models import LOGITS, furthest, made
from test_pairs import JUDGES, OTHER, joining
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import NFC, Lowercase, Sequence
from tokenizers.pre_tokenizers import Whitespace

from late import Late
from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters import sentence_files
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions
from weft_proto.prompts import default_prompt

st = Late("sentence_transformers")
parts = Late("sentence_transformers.base.modules")
pooling = Late("sentence_transformers.sentence_transformer.modules")
base = Late("sentence_transformers.base.model")

TEXT, PAIR = "we eat bread", ("a cat", "the house")
LONGEST = 20
WIDTH = 5
# As tokenizers wrote it before its normalizers had types.
BERTS = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": False, "lowercase": False}
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """What sentence-transformers saved."""
    return saved_embedder(tmp_path_factory.mktemp("embedder"))


def saved_embedder(path):
    """Let sentence-transformers save mean, a dense layer as wide as the body, a narrower one, length 1."""
    body = made(EMBEDDERS[0], 0, path / "body")
    padded(path / "body")
    width = body.config.hidden_size
    torch.manual_seed(0)
    modules = [
        parts.Transformer(str(path / "body"), max_seq_length=LONGEST),
        pooling.Pooling(width, "mean"),
        parts.Dense(width, width),
        parts.Dense(width, WIDTH, activation_function=torch.nn.Identity()),
        parts.Normalize(),
    ]
    st.SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(path / "saved"))
    return path / "saved"


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """The same for a cross-encoder of one label."""
    path = tmp_path_factory.mktemp("judge")
    made(JUDGES[0], 1, path / "body")
    joining(path / "body", separator=OTHER)
    padded(path / "body")
    st.CrossEncoder(str(path / "body"), device="cpu", max_length=LONGEST).save_pretrained(str(path / "saved"))
    return path / "saved"


def padded(directory):
    """Give a tokenizer a token to pad with, which theirs always does."""
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": "<pad>"}))


def attempted(make):
    """What a function of theirs returns; None where it refuses, by whatever error."""
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            return make()
    except Exception:  # noqa: BLE001  theirs are of many kinds
        return None


def their_vector(directory, text=TEXT):
    """What encode() makes of a text."""
    return st.SentenceTransformer(str(directory), device="cpu").encode([text], convert_to_tensor=True)[0]


def their_score(directory, pair=PAIR):
    """What predict() makes of a pair."""
    return st.CrossEncoder(str(directory), device="cpu").predict([pair], convert_to_tensor=True)[:1]


def our_answer(checkpoint, *texts):
    """Our vector of a text, or score of a pair; None where a server refuses the text as too long."""
    name = checkpoint.text.source_tokenizer
    first, *more = texts
    ids = tokenizer_of(name, checkpoint.files[name]).encode(default_prompt(checkpoint.text) + first, *more).ids
    if len(ids) > checkpoint.text.max_source_tokens:
        return None
    with torch.inference_mode():
        answer = checkpoint.model(torch.tensor([ids]), torch.tensor([len(ids)], dtype=torch.int32))[0]
    return answer.sigmoid() if getattr(checkpoint.model, "scoring", "") == "sigmoid" else answer


def test_an_embedder_that_it_saved_embeds_as_it_does(embedder):
    """Vectors within 1e-4; a text that encode() would cut is too long here."""
    result = convert(embedder, ExportOptions())
    assert LOGITS >= furthest(our_answer(result.checkpoint, TEXT), their_vector(embedder))
    assert LONGEST == result.checkpoint.text.max_source_tokens
    assert LONGEST == st.SentenceTransformer(str(embedder), device="cpu").max_seq_length
    assert () == result.notes


@pytest.mark.parametrize("is_normalised", [True, False])
@pytest.mark.parametrize("length", [1, 3, 10**12])
def test_a_vector_has_as_many_numbers_as_its_file_says(length, is_normalised, embedder, tmp_path):
    """truncate_dim keeps the first of them. What is left has a length of its own, as theirs has."""
    directory = edited(embedder, tmp_path / "edited", MODEL, ("truncate_dim",), length)
    if not is_normalised:
        path = directory / "modules.json"
        path.write_text(json.dumps(json.loads(path.read_text())[:-1]))
    expected = their_vector(directory)
    checkpoint = convert(directory, ExportOptions()).checkpoint
    assert expected.shape == (checkpoint.model.config.dimensions,)
    assert LOGITS >= furthest(our_answer(checkpoint, TEXT), expected)


@pytest.mark.parametrize("activation", [None, IDENTITY, "torch.nn.modules.activation.Sigmoid"])
def test_a_cross_encoder_that_it_saved_scores_as_it_does(activation, judge, tmp_path):
    """The score itself within 1e-4, whichever function makes it of the logit; a longer pair is too long."""
    directory = edited(judge, tmp_path / "edited", sentence_files.MODEL, ("activation_fn",), activation or ABSENT)
    result = convert(directory, ExportOptions())
    assert LOGITS >= furthest(our_answer(result.checkpoint, *PAIR), their_score(directory))
    assert LONGEST == result.checkpoint.text.max_source_tokens


def test_texts_are_in_lower_case_where_its_file_says_so(embedder, judge, tmp_path):
    """Before the tokenizer reads them, for vectors and for scores: what is asked in capitals is answered as theirs."""
    loud = [text.upper() for text in (TEXT, *PAIR)]
    for name, given, theirs, texts in (("e", embedder, their_vector, loud[:1]), ("j", judge, their_score, loud[1:])):
        directory = edited(given, tmp_path / name, TRANSFORMER, ("do_lower_case",), True)
        expected = theirs(directory, texts[0] if len(texts) == 1 else tuple(texts))
        result = convert(directory, ExportOptions())
        assert LOGITS >= furthest(our_answer(result.checkpoint, *texts), expected)
        assert () == result.notes
        assert LOGITS < furthest(our_answer(convert(given, ExportOptions()).checkpoint, *texts), expected)


@pytest.mark.parametrize("normalizer", [ABSENT, None, {"normalizers": [{"type": "NFC"}]}, BERTS])
def test_lower_case_goes_before_whatever_the_tokenizers_library_reads(normalizer, tmp_path):
    """It needs neither the key nor, as older files, the types of normalizers. One that is there stays in its place."""
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / TRANSFORMER).write_text('{"do_lower_case": true}')
    given = Tokenizer(WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    given.pre_tokenizer = Whitespace()
    content = changed(json.loads(given.to_str()), ("normalizer",), normalizer)
    made = sentence_files.with_lower_case(tmp_path, json.dumps(content).encode())
    assert ["hello", "world"] == Tokenizer.from_buffer(made).encode("Hello WORLD").tokens
    given.normalizer = Sequence([NFC(), Lowercase()])
    assert given.to_str().encode() == sentence_files.with_lower_case(tmp_path, given.to_str().encode())


@pytest.mark.parametrize("names", [["input_ids", "attention_mask"], ABSENT])
def test_a_tokenizer_that_tells_no_segments_has_one(names, judge, tmp_path):
    """A model with two segments is then told of the first alone, and a note says so."""
    directory = edited(judge, tmp_path / "edited", "tokenizer_config.json", ("model_input_names",), names)
    result = convert(directory, ExportOptions())
    assert LOGITS >= furthest(our_answer(result.checkpoint, *PAIR), their_score(directory))
    assert any("token_type_ids" in note for note in result.notes)


def test_its_own_file_counts_before_config_json(judge, tmp_path):
    """As predict() takes it: its own file, then the newer place in config.json, then the older."""
    older = "sbert_ce_default_activation_function"
    directory = edited(judge, tmp_path / "one", "config.json", (older,), IDENTITY)
    assert LOGITS >= furthest(our_answer(convert(directory, ExportOptions()).checkpoint, *PAIR), their_score(directory))
    (directory / sentence_files.MODEL).unlink()
    (directory / "modules.json").unlink()
    assert LOGITS >= furthest(our_answer(convert(directory, ExportOptions()).checkpoint, *PAIR), their_score(directory))
    newer = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    directory = edited(directory, tmp_path / "two", "config.json", ("sentence_transformers",), newer)
    assert LOGITS >= furthest(our_answer(convert(directory, ExportOptions()).checkpoint, *PAIR), their_score(directory))


def test_a_cross_encoder_of_several_labels_judges_pairs_without_being_told(tmp_path):
    """Its file says that it is one. Its logits are made probabilities, and a note says so."""
    kind = JUDGES[0]
    several = type(kind)(
        kind.name, kind.architecture, lambda rng: kind.draw(rng) | {"id2label": {0: "a", 1: "b", 2: "c"}}
    )
    made(several, 1, tmp_path / "body")
    joining(tmp_path / "body", separator=OTHER)
    padded(tmp_path / "body")
    st.CrossEncoder(str(tmp_path / "body"), device="cpu").save_pretrained(str(tmp_path / "saved"))
    result = convert(tmp_path / "saved", ExportOptions())
    logits = st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict([PAIR], convert_to_tensor=True)[0]
    assert LOGITS >= furthest(our_answer(result.checkpoint, *PAIR), logits)
    assert (OTHER, "softmax") == (result.checkpoint.text.separator_id, result.checkpoint.model.scoring)
    assert "sentence-transformers gives logits of several labels; scores are their softmax" in result.notes


def edited(directory, to, file, path, value):
    """A copy of a directory with one value changed. path: keys, or places of a list."""
    shutil.copytree(directory, to, dirs_exist_ok=True)
    given = json.loads((to / file).read_text()) if (to / file).exists() else {}
    if isinstance(given, list):
        given[path[0]] = changed(given[path[0]], path[1:], value)
    else:
        given = changed(given, path, value)
    (to / file).write_text(json.dumps(given))
    return to


MODEL, TRANSFORMER = sentence_files.MODEL, sentence_files.TRANSFORMERS[0]
REFUSED = [
    (MODEL, ("model_type",), "CrossEncoder"),
    (MODEL, ("model_type",), "SparseEncoder"),
    *((MODEL, ("truncate_dim",), value) for value in (0, -1, True, 2.0, "3", [3])),
    ("2_Dense/config.json", ("use_residual",), True),
    ("2_Dense/config.json", ("module_output_name",), "token_embeddings"),
    ("2_Dense/config.json", ("activation_function",), "mine.Tanh"),
    ("4_Normalize/config.json", ("module_input_name",), "token_embeddings"),
    ("modules.json", (0, "type"), "mine.Transformer"),
    (TRANSFORMER, ("transformer_task",), "fill-mask"),
    (TRANSFORMER, ("module_output_name",), "sentence_embedding"),
    (TRANSFORMER, ("modality_config",), {"message": {"method": "forward", "method_output_name": "x"}}),
    (TRANSFORMER, ("processing_kwargs",), {"text": {"add_special_tokens": False}}),
    (TRANSFORMER, ("config_kwargs",), {"hidden_act": "relu"}),
    (TRANSFORMER, ("query_expansion",), {"length": 8}),
]


@pytest.mark.parametrize(("file", "path", "value"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_followed_is_refused_by_name(file, path, value, embedder, tmp_path):
    """No silently different vectors: the file, and the key or its value."""
    directory = edited(embedder, tmp_path / "edited", file, path, value)
    with pytest.raises(CheckpointError) as refused:
        convert(directory, ExportOptions(), filled=False)
    assert path[-1] in str(refused.value) or str(value) in str(refused.value)


NOTED = [
    (MODEL, ("new_of_version_9",), 3),
    ("modules.json", (0, "new_of_version_9"), 3),
    (TRANSFORMER, ("query_length",), 7),
    ("1_Pooling/config.json", ("new_of_version_9",), [1]),
]


@pytest.mark.parametrize(("file", "path", "value"), NOTED, ids=lambda each: str(each)[:40])
def test_what_is_not_followed_is_noted(file, path, value, embedder, tmp_path):
    """A person reads of it while there is time to stop, once."""
    directory = edited(embedder, tmp_path / "edited", file, path, value)
    (note,) = convert(directory, ExportOptions(), filled=False).notes
    assert path[-1] in note


TABLES = {
    MODEL: sentence_files.MODEL_KEYS,
    TRANSFORMER: sentence_files.TRANSFORMER_KEYS,
    "1_Pooling/config.json": sentence_files.POOLING_KEYS,
    "2_Dense/config.json": sentence_files.DENSE_KEYS,
    "4_Normalize/config.json": sentence_files.NORMALIZE_KEYS,
}


def keys_in_code(*functions):
    """The names that functions of theirs take out of a config, or put into it: all words that are text in them."""
    trees = [ast.parse(textwrap.dedent(inspect.getsource(function))) for function in functions]
    words = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {word for word in words if isinstance(word, str) and word.isidentifier()}


def test_each_key_of_a_model_that_its_code_names_is_in_the_table():
    """Also those that it writes only where somebody chose them."""
    classes = (st.SentenceTransformer, st.CrossEncoder, base.BaseModel)
    keys = keys_in_code(*(each for cls in classes for each in (cls._parse_model_config, cls._get_model_config)))
    assert {"truncate_dim", "keep_in_fp32_modules", "prompts"} <= keys
    # Versions of libraries stand in an object of their own.
    assert set() == keys - {*sentence_files.MODEL_KEYS} - {"sentence_transformers", "transformers", "pytorch"}


def test_each_key_that_it_saves_or_reads_is_in_a_table(embedder, judge):
    """A newer sentence-transformers that writes or reads more makes this fail."""
    classes = (parts.Transformer, pooling.Pooling, parts.Dense, parts.Normalize)
    modules = dict(zip(list(TABLES)[1:], classes, strict=True))
    for file, table in TABLES.items():
        keys = {*json.loads((embedder / file).read_text())}
        if (judge / file).exists():
            keys |= {*json.loads((judge / file).read_text())}
        if file in modules:
            keys |= {*modules[file].config_keys, *modules[file].config_key_renames}
        assert set() == keys - {*table}
    assert {key for each in json.loads((embedder / "modules.json").read_text()) for key in each} <= {
        *sentence_files.MODULE_KEYS
    }


def fault(directory, work, file, path, value, theirs, texts):
    """What is wrong with how we read a changed directory; None if nothing is."""
    shutil.rmtree(work, ignore_errors=True)
    edited(directory, work, file, path, value)
    expected = attempted(lambda: theirs(work))
    if expected is None:
        return None
    try:
        result = convert(work, ExportOptions())
    except CheckpointError as error:
        named = (str(path[-1]), "max_seq_length", "pools by", "model_type", "weights", "modules.json")
        return None if any(name in str(error) for name in named) else f"refused without its name: {error}"
    actual = our_answer(result.checkpoint, *texts)
    # A text that theirs cut is refused here.
    if actual is None or (actual.shape == expected.shape and furthest(actual, expected) <= LOGITS):
        return None
    return None if any(path[-1] in note for note in result.notes) else f"another answer; notes are {result.notes}"


MORE = {
    "activation_fn": [IDENTITY, "torch.nn.modules.activation.Tanh"],
    "activation_function": ["torch.nn.modules.activation.ReLU", "torch.nn.modules.activation.ELU"],
    "config_args": [{"hidden_act": "relu"}],
    "config_kwargs": [{"hidden_act": "relu"}],
    "default_prompt_name": ["query"],
    "max_seq_length": [4, 12],
    "model_type": [sentence_files.EMBEDDER, sentence_files.JUDGE],
    "module_input_name": ["token_embeddings"],
    "module_output_name": ["token_embeddings", "sentence_embedding"],
    "kwargs": [["task"]],
    "name": ["0", "1", "3"],
    "path": ["", "1_Pooling", "2_Dense"],
    "pooling_mode": ["cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ["cls", "mean"]],
    "processing_kwargs": [{"text": {"max_length": 4}}, {"text": {"add_special_tokens": False}}],
    "processor_kwargs": [{"model_max_length": 4}, {"truncation_side": "left"}],
    "prompts": [{"query": "a bread: "}],
    "query_expansion": [{"strategy": "fixed", "length": 16, "token": None}],
    "tokenizer_args": [{"model_max_length": 4}],
    "transformer_task": ["fill-mask", "sequence-classification", "text-generation"],
}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["embedder", "judge"])
def test_each_key_of_each_file_is_followed_or_told(kind, request, tmp_path):
    """Whatever one key of one file says: their answer, or a refusal or a note that names the key."""
    directory = request.getfixturevalue(kind)
    theirs, texts = (their_vector, (TEXT,)) if kind == "embedder" else (their_score, PAIR)
    faults, tried = {}, 0
    for file, table in TABLES.items():
        if not (directory / file).exists():
            continue
        given = json.loads((directory / file).read_text())
        for name in sorted({*given, *table}):
            for value in (*others(name, given.get(name)), *MORE.get(name, ())):
                tried += 1
                if found := fault(directory, tmp_path / "work", file, (name,), value, theirs, texts):
                    faults[f"{file}: {name}: {'absent' if value is ABSENT else value!r}"] = found
    for length in (4, 12, 10**30):
        if found := fault(
            directory, tmp_path / "work", "tokenizer_config.json", ("model_max_length",), length, theirs, texts
        ):
            faults[f"model_max_length: {length}"] = found
    assert {} == faults
    assert tried > 100
