"""Prompts that sentence-transformers saved stand before texts as it puts them, and texts are cut where it cuts them."""

import asyncio
import json
import re
import shutil

import pytest
import tokenizers
import torch
from decoder_kinds import BODIES, DECODERS
from encoder_kinds import CLASSIFIERS, EMBEDDERS, FILLERS, MASK, TAGGERS, masking
from hf_models import LOGITS, Kind, converted, furthest, made
from test_pairs import JUDGES, OTHER, joining
from test_sentence_files import padded
from transformers import AutoTokenizer, pipeline

from late import Late
from loaded import Loaded, ask
from weft_export.checkpoints.golden_requests import with_golden
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer
from weft_export.converters.convert import convert
from weft_export.converters.lengths import tokenizer_length
from weft_export.converters.sentence_files import read_transformer
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_export.verification.golden import GoldenRequest
from weft_proto.v1 import bundle_pb2, common_pb2, embedding_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.inputs import InputReader
from weft_server.preprocessing.prompts import Prompt
from weft_server.preprocessing.tokenizer import Tokenizer, truncation_of

st = Late("sentence_transformers")
parts = Late("sentence_transformers.base.modules")
pooling = Late("sentence_transformers.sentence_transformer.modules")

LONGEST = 20
LIMITS = dict.fromkeys(("max_image_bytes", "max_image_pixels", "max_audio_bytes", "max_audio_s"), 0)
PROMPTS = {"query": "a bread: ", "passage": "we eat ", "plain": ""}
TEXT, LONG = "the house", "we eat bread in the house of a cat. " * 9
PAIRS = [(TEXT, LONG), (LONG, TEXT), (LONG, LONG[::-1]), (TEXT, "x")]
MODEL = "config_sentence_transformers.json"


def edited(directory, **values):
    """Change an object of JSON, in the file of the model's class."""
    path = directory / MODEL
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """What sentence-transformers saved: a body, a mean and the length 1; prompts, of which one is the default."""
    path = tmp_path_factory.mktemp("embedder")
    body = made(EMBEDDERS[0], 0, path / "body")
    padded(path / "body")
    modules = [
        parts.Transformer(str(path / "body"), max_seq_length=LONGEST),
        pooling.Pooling(body.config.hidden_size),
        parts.Normalize(),
    ]
    model = st.SentenceTransformer(modules=modules, device="cpu", prompts=PROMPTS, default_prompt_name="passage")
    model.save_pretrained(str(path / "saved"))
    return path / "saved"


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """The same for a cross-encoder of one label."""
    path = tmp_path_factory.mktemp("judge")
    made(JUDGES[0], 1, path / "body")
    joining(path / "body", separator=OTHER)
    padded(path / "body")
    prompts = {"prompts": {"query": PROMPTS["query"]}, "default_prompt_name": "query"}
    st.CrossEncoder(str(path / "body"), device="cpu", max_length=LONGEST, **prompts).save_pretrained(
        str(path / "saved")
    )
    return path / "saved"


def served(directory, bundle, *questions):
    """Export with --truncate, and return what a model answers to requests; of one that it refuses, the error."""
    export_checkpoint(directory, bundle, ExportOptions(no_explain=True, truncate=True))

    async def one(model, request):
        try:
            return await ask(model, **request)
        except InvalidRequest as error:
            return error

    async def run():
        async with Loaded(bundle) as model:
            return await asyncio.gather(*(one(model, each) for each in questions))

    return asyncio.run(run())


def asking(text, **options):
    """A request to embed one text."""
    return {"inputs": [embedding_pb2.EmbedInput(text=text)], **options}


def test_an_embedder_is_served_as_it_encodes(embedder, tmp_path):
    """Vectors within 1e-4: by default, by each name, without a prompt; of texts that are longer than it takes."""
    theirs = st.SentenceTransformer(str(embedder), device="cpu")
    names = [*theirs.prompts]
    assert {*PROMPTS, "document"} == {*names}
    cases = [({}, {}), ({"prompt_name": ""}, {"prompt": ""}), *(({"prompt_name": name},) * 2 for name in names)]
    requests = [asking(text, **ours) for ours, _ in cases for text in (TEXT, LONG)]
    ids = {"inputs": [embedding_pb2.EmbedInput(token_ids=common_pb2.TokenIds(ids=[5, 6]))]}
    wrong = [asking(TEXT, prompt_name="queri"), ids | {"prompt_name": "query"}, asking("a" * 131_073)]
    *answers, unknown, of_ids, endless = served(embedder, tmp_path / "embedder" / "1", *requests, *wrong)
    expected = [theirs.encode(text, **of_theirs) for _, of_theirs in cases for text in (TEXT, LONG)]
    for request, answer, vector in zip(requests, answers, expected, strict=True):
        actual = torch.tensor(answer.embeddings[0].values)
        assert LOGITS >= furthest(actual, torch.tensor(vector)), request
    assert [LONGEST] * len(cases) == [answer.usage.input_tokens for answer in answers[1::2]]
    queried = [theirs.encode_query(TEXT, convert_to_tensor=True), theirs.encode_document(TEXT, convert_to_tensor=True)]
    for vector, name in zip(queried, ("query", "document"), strict=True):
        at = requests.index(asking(TEXT, prompt_name=name))
        assert LOGITS >= furthest(torch.tensor(answers[at].embeddings[0].values), vector)
    assert "prompt_name must be one of 'query', 'document', 'passage', 'plain', not 'queri'" == unknown.message
    assert ("prompt_name", "INVALID_FIELD") == (of_ids.field, of_ids.reason)
    assert "INPUT_TOO_LONG" == endless.reason


def test_a_decoder_with_instructions_is_served_as_it_encodes(tmp_path):
    """As Qwen3-Embedding is saved: the prompt of queries is an instruction, or it stands in the text.

    A text ends with a token of its own, whose vector counts.
    """
    instruction, other = "Instruct: Find what answers.\nQuery:", "Instruct: Find a rhyme.\nQuery:"
    (qwen3,) = (kind for kind in BODIES if kind.name == "qwen3-body")
    body = made(qwen3, 0, tmp_path / "body")
    padded(tmp_path / "body")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "body" / "tokenizer.json"))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <end>", special_tokens=[("<end>", tokenizer.token_to_id("<end>"))]
    )
    tokenizer.save(str(tmp_path / "body" / "tokenizer.json"))
    last = pooling.Pooling(body.config.hidden_size, pooling_mode="lasttoken")
    modules = [parts.Transformer(str(tmp_path / "body"), max_seq_length=64), last, parts.Normalize()]
    theirs = st.SentenceTransformer(modules=modules, device="cpu", prompts={"query": instruction, "document": ""})
    theirs.save_pretrained(str(tmp_path / "saved"))
    cases = {
        ("query", TEXT): theirs.encode_query(TEXT),
        ("document", TEXT): theirs.encode_document(TEXT),
        ("", other + TEXT): theirs.encode(TEXT, prompt=other),
    }
    requests = [asking(text, prompt_name=name) for name, text in cases]
    answers = served(tmp_path / "saved", tmp_path / "m" / "1", *requests)
    found = torch.tensor([answer.embeddings[0].values for answer in answers])
    assert LOGITS >= furthest(found, torch.tensor([vector.tolist() for vector in cases.values()]))
    assert 0.01 < torch.pdist(found).min()


def test_a_cross_encoder_scores_as_it_predicts(judge, tmp_path):
    """Scores within 1e-4, with the default prompt before the first text, and of two texts that are too long."""
    theirs, checkpoint = st.CrossEncoder(str(judge), device="cpu"), converted(judge, truncate=True)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(checkpoint.files[checkpoint.text.source_tokenizer])
    manifest = bundle_pb2.BundleManifest(task=checkpoint.task, text=checkpoint.text)
    reader = InputReader(manifest, Tokenizer(path, truncation_of(checkpoint.text)), **LIMITS)
    read = [reader.read_pair(*pair) for pair in PAIRS] + [reader.read_pair(*PAIRS[0], prompt=Prompt(""))]
    expected = [*theirs.predict(PAIRS), *theirs.predict(PAIRS[:1], prompt="")]
    for source, score in zip(read, expected, strict=True):
        lengths = torch.tensor([source.num_tokens], dtype=torch.int32)
        with torch.inference_mode():
            logit = checkpoint.model(torch.from_numpy(source.array)[None], lengths)[0]
        assert pytest.approx(float(score), abs=LOGITS) == float(logit.sigmoid())
    assert [LONGEST] * 3 == [source.num_tokens for source in read[:3]]


@pytest.mark.long
def test_a_cross_encoder_is_served_so(judge, tmp_path):
    """By a server, in one batch."""
    theirs = st.CrossEncoder(str(judge), device="cpu")
    requests = [{"text": text, "text_pair": other} for text, other in PAIRS]
    bare = {**requests[0], "prompt_name": ""}
    answers = served(judge, tmp_path / "judge" / "1", *requests, bare)
    expected = [*theirs.predict(PAIRS), *theirs.predict(PAIRS[:1], prompt="")]
    assert pytest.approx(expected, abs=LOGITS) == [answer.labels[0].score for answer in answers]


HEADS = {"text-classification": CLASSIFIERS, "token-classification": TAGGERS}


def bounded(task, directory, length=LONGEST, positions=48, **said):
    """Write a small model for a task whose tokenizer takes a number of tokens; return its pipeline of transformers."""
    drawn = HEADS[task][0]
    kind = Kind(drawn.name, drawn.architecture, lambda rng: drawn.draw(rng) | {"max_position_embeddings": positions})
    model = made(kind, 1, directory)
    joining(directory, separator=OTHER)
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": length} | said))
    return pipeline(task, model=model, tokenizer=AutoTokenizer.from_pretrained(directory), device="cpu")


@pytest.mark.parametrize("said", [{"truncation_side": "left"}, {"truncation_side": "right"}, {}], ids=str)
@pytest.mark.parametrize("task", HEADS)
def test_a_text_is_cut_as_its_pipeline_cuts_it(task, said, tmp_path):
    """At model_max_length, on the side that a file says; special tokens stay. Without --truncate it is refused."""
    theirs = bounded(task, tmp_path, **said)
    # A classifier's is told to; a tagger's does so by itself.
    is_classifier = task == "text-classification"
    theirs = (
        theirs.preprocess(LONG, truncation=True)
        if is_classifier
        else next(theirs.preprocess(LONG, **theirs._preprocess_params))
    )
    checkpoint = convert(tmp_path, ExportOptions(truncate=True), filled=False).checkpoint
    ids = encode_source(checkpoint, read_tokenizer(checkpoint, checkpoint.text.source_tokenizer), LONG)
    assert theirs["input_ids"][0].tolist() == ids
    assert (LONGEST, OTHER) == (len(ids), ids[-1])
    refusing = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    longest = 48 if is_classifier else LONGEST
    with pytest.raises(CheckpointError, match=f"the model takes {longest}"):
        encode_source(refusing, read_tokenizer(refusing, refusing.text.source_tokenizer), LONG)


def test_the_older_name_of_a_length_counts_where_the_other_is_missing(tmp_path):
    """max_len: for the pipelines of transformers, and for sentence-transformers. Null is there, and says none."""
    for said, longest in ({"max_len": 7}, 7), ({"max_len": 7, "model_max_length": None}, None):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
        assert longest == tokenizer_length(tmp_path) == read_transformer(tmp_path).longest


def test_a_side_of_the_tokenizers_own_file_counts_where_no_other_says_it(tmp_path):
    """As transformers takes it; a side that is none is refused by its name."""
    bounded("text-classification", tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.enable_truncation(7, direction="left")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert "left" == AutoTokenizer.from_pretrained(tmp_path).truncation_side
    text = convert(tmp_path, ExportOptions(truncate=True), filled=False).checkpoint.text
    assert (LONGEST, common_pb2.TRUNCATION_SIDE_LEFT) == (text.max_source_tokens, text.truncation_side)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation_side": "middle"}))
    with pytest.raises(CheckpointError, match="truncation_side is 'middle', neither left nor right"):
        converted(tmp_path, truncate=True)


@pytest.mark.parametrize("said", [["left"], {"left": 1}, 0, "middle"], ids=str)
def test_a_side_that_is_none_is_refused_by_the_file_that_says_it(embedder, said, tmp_path):
    """That of the first module counts before the tokenizer's own."""
    shutil.copytree(embedder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_args": {"truncation_side": said}}))
    with pytest.raises(CheckpointError, match=f"{path.name}: truncation_side is {re.escape(repr(said))}, neither"):
        converted(tmp_path, truncate=True)


def test_a_text_that_is_cut_may_be_as_long_as_its_owner_takes_it(tmp_path, embedder):
    """A cut at a default of ours would be silently different. A length that is chosen is a person's own."""
    bounded("text-classification", tmp_path, 1000, positions=700)
    lengths = [each.text.max_source_tokens for each in (converted(tmp_path), converted(tmp_path, truncate=True))]
    assert [512, 700] == lengths
    chosen = converted(embedder, truncate=True, max_tokens=9).text
    assert (9, common_pb2.TRUNCATION_SIDE_RIGHT) == (chosen.max_source_tokens, chosen.truncation_side)


def test_what_writes_text_or_reads_pictures_cuts_nothing(tmp_path):
    """--truncate is refused there, before any weight is read."""
    (gpt2,) = (each for each in DECODERS if each.name == "gpt2")
    made(gpt2, 0, tmp_path)
    with pytest.raises(CheckpointError, match="texts are cut for classifiers, taggers and embedders of texts"):
        converted(tmp_path, truncate=True)


WRONG = {
    "default_prompt_name is 'querry'": {"default_prompt_name": "querry"},
    "prompts is 'query: '": {"prompts": "query: "},
    "prompts has 'query': 3": {"prompts": {"query": 3}},
    "text.prompts[0].text has 1025": {"prompts": {"query": "a" * 1025}},
}


@pytest.mark.parametrize("words", WRONG)
def test_prompts_that_no_server_takes_are_refused_by_name(words, embedder, tmp_path):
    """The default one is one of them, as sentence-transformers wants it too."""
    shutil.copytree(embedder, tmp_path, dirs_exist_ok=True)
    edited(tmp_path, **{"default_prompt_name": None} | WRONG[words])
    with pytest.raises(CheckpointError) as refused:
        convert(tmp_path, ExportOptions(), filled=False)
    assert words in str(refused.value)


def test_a_pooling_without_the_prompt_is_refused_where_there_is_a_prompt(embedder, tmp_path):
    """Where none says anything, all tokens are pooled there too."""
    shutil.copytree(embedder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "1_Pooling" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"include_prompt": False}))
    with pytest.raises(CheckpointError, match="include_prompt is false"):
        converted(tmp_path)
    edited(tmp_path, prompts={"query": "", "passage": None}, default_prompt_name="passage")
    result = convert(tmp_path, ExportOptions())
    theirs = st.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXT)
    tokenizer = read_tokenizer(result.checkpoint, result.checkpoint.text.source_tokenizer)
    ids = encode_source(result.checkpoint, tokenizer, TEXT)
    with torch.inference_mode():
        vector = result.checkpoint.model(torch.tensor([ids]), torch.tensor([len(ids)], dtype=torch.int32))[0]
    assert LOGITS >= furthest(vector, torch.tensor(theirs))
    assert () == result.notes


@pytest.mark.parametrize("kind", [DECODERS[0], EMBEDDERS[0], CLASSIFIERS[0], FILLERS[0]], ids=lambda kind: kind.name)
def test_a_model_of_few_tokens_is_tried_with_few_words(kind, tmp_path):
    """Nobody gave the golden text, so it is never too long: what the model takes of its beginning is asked.

    A text that is masked keeps a mask. One that a person gives is refused.
    """
    made(kind, 0, tmp_path)
    if kind is FILLERS[0]:
        masking(tmp_path)
    ours = converted(tmp_path, max_tokens=16, pooling="mean" if kind is EMBEDDERS[0] else None)
    masked = MASK if kind is FILLERS[0] else "small"
    assert f"The house is {masked}, and there" == ours.golden.text
    GoldenRequest(ours, bundle_pb2.PRECISION_FP32).answer()
    given = with_golden(ours, f"The house is {masked}, and there is a garden")
    with pytest.raises(CheckpointError, match="the golden text has"):
        GoldenRequest(given, bundle_pb2.PRECISION_FP32).answer()
