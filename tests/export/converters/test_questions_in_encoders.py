"""Models of others whose encoder reads a picture and a question: Florence-2, BLIP-2 with T5."""

import asyncio
import base64
import http.client
import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
import transformers
from google.protobuf import json_format
from hf_models import LOGITS, NUM_LONG, converted, furthest, greedy, their_greedy
from question_kinds import ASKING, BLIP2_T5, FLORENCE2, made_asking
from sight_kinds import DECODING, NEW_TOKENS, pictures
from test_splitting import change_within
from test_tiles import file_of
from tokenizers import Tokenizer

import weft
from loaded import Loaded, ask, refusal_of
from process import ServerProcess
from shown_code import blocks
from terminal import WEFT
from weft_export.checkpoints.framing import asked_ids, asked_source
from weft_export.checkpoints.held_out import read_held_out, write_held_out
from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_export.converters.classes import check_class
from weft_export.converters.convert import convert
from weft_export.converters.questions import FORMS
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row, row_of
from weft_export.options import ExportOptions
from weft_export.quantization.requests import OWN_TEXTS, held_out_requests, own_requests
from weft_proto.questions import asked_text
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import InvalidRequest

QUESTIONS = ("What is to be seen here? <a cat, or a dog>", "Why")
ids = [kind.name for kind in ASKING]


def check(kind, seed, directory):
    """Hold one random model to transformers: pixels, ids, logits of an answer, and greedy tokens of two at once."""
    theirs, processor = made_asking(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=80)
    rows, written = [], []
    for picture, question in zip(pictures(2, seed), QUESTIONS, strict=True):
        inputs = processor(images=picture, text=question, return_tensors="pt")
        pixels = read_picture("", file_of(picture), ours.image)
        assert np.abs(pixels - inputs["pixel_values"][0].numpy()).max() <= 1e-5
        ids, lengths = asked_source(ours, question)
        assert ids[0].tolist() == inputs["input_ids"][0, ours.model.config.num_places :].tolist()
        target = torch.randint(ours.text.target_vocab_size, (1, 9), generator=torch.Generator().manual_seed(seed))
        with torch.inference_mode():
            expected = theirs(**inputs, decoder_input_ids=target).logits
            actual = ours.model.decode(target, inputs["pixel_values"], ids, lengths)
        assert LOGITS >= furthest(actual, expected)
        written.append(their_greedy(theirs, inputs, NEW_TOKENS))
        rows.append(Row(torch.from_numpy(pixels), [ours.text.start_id], asked=ids[0]))
    assert written == greedy(ours, rows, NEW_TOKENS)


@pytest.mark.parametrize("kind", ASKING, ids=ids)
def test_a_model_that_is_asked_answers_as_transformers(kind, tmp_path):
    """Logits within 1e-4 at every place, and the same 24 greedy tokens."""
    check(kind, 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", ASKING, ids=ids)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)


def served(bundle, requests, decoding=DECODING, *, at_once=True, explain=None):
    """What a server answers to pictures with questions: all at once, or one after another."""

    async def run():
        async with Loaded(bundle, slots=len(requests)) as model:
            asked = [{"image": {"data": file_of(picture)}, "text": text} for picture, text in requests]
            calls = [ask(model, **each, decoding=decoding, return_scores=True, explain=explain) for each in asked]
            return await asyncio.gather(*calls) if at_once else [await each for each in calls]

    return asyncio.run(run())


def asked_of(seed):
    """Two pictures with three questions each. Two of them are padded to one length, and have other lengths."""
    return [(picture, question) for picture in pictures(2, seed) for question in (*QUESTIONS, "Whom?")]


@pytest.fixture(scope="module")
def florence2(tmp_path_factory):
    """A Florence-2 of theirs, its processor, and the repository with the bundle of it."""
    directory = tmp_path_factory.mktemp("florence2")
    theirs, processor = made_asking(FLORENCE2, 1, directory / "theirs")
    export_checkpoint(directory / "theirs", directory / "models" / "m" / "1", ExportOptions(max_tokens=80))
    return theirs, processor, directory / "models"


def check_served(theirs, processor, bundle):
    """Hold answers to six questions that come at once to generate(): tokens, and the text of all that are no ends."""
    for (picture, question), answer in zip(asked_of(1), served(bundle, asked_of(1)), strict=True):
        inputs = processor(images=picture, text=question, return_tensors="pt")
        expected = their_greedy(theirs, inputs, NEW_TOKENS)
        assert expected == list(answer.completion.token_ids)
        assert processor.tokenizer.decode([each for each in expected if each > 1]) == answer.completion.text


@pytest.mark.slow
def test_a_florence2_is_served_as_transformers_generates(florence2):
    """The same greedy tokens. Those of places on the picture, which are special there, stay in the text.

    A mask does not, although no file names it.
    """
    theirs, processor, models = florence2
    check_served(theirs, processor, models / "m" / "1")
    tokenizer = Tokenizer.from_file(str(models / "m" / "1" / "tokenizer.json"))
    places = [tokenizer.token_to_id(each) for each in ("<s>", "<loc_3>", "<loc_19>", "<mask>", "<image>", "<end>")]
    assert "<loc_3><loc_19>" == tokenizer.decode(places)


@pytest.mark.slow
def test_a_florence2_searches_as_its_file_says(tmp_path):
    """As released: three beams, no three tokens twice, a first and a last token that are forced."""
    _, processor = made_asking(FLORENCE2, 3, tmp_path / "theirs")
    said = {"num_beams": 3, "early_stopping": True, "no_repeat_ngram_size": 3, "max_new_tokens": NEW_TOKENS}
    forced = {"forced_bos_token_id": 301, "forced_eos_token_id": 1}
    ends = {"decoder_start_token_id": 1, "eos_token_id": 1, "bos_token_id": 301, "pad_token_id": 0}
    (tmp_path / "theirs" / "generation_config.json").write_text(json.dumps(said | forced | ends))
    theirs = transformers.Florence2ForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    export_checkpoint(tmp_path / "theirs", tmp_path / "m" / "1", ExportOptions(max_tokens=80))
    for (picture, question), answer in zip(asked_of(3), served(tmp_path / "m" / "1", asked_of(3), None), strict=True):
        inputs = processor(images=picture, text=question, return_tensors="pt")
        # The start, and the token that is forced.
        assert theirs.generate(**inputs)[0, 2:].tolist() == list(answer.completion.token_ids)


@pytest.mark.slow
def test_a_blip2_with_t5_is_served_as_transformers_generates(tmp_path):
    """The same greedy tokens."""
    theirs, processor = made_asking(BLIP2_T5, 1, tmp_path / "theirs")
    export_checkpoint(tmp_path / "theirs", tmp_path / "models" / "m" / "1", ExportOptions(max_tokens=80))
    check_served(theirs, processor, tmp_path / "models" / "m" / "1")


def bits(answer):
    """What of an answer is the same in any batch."""
    return list(answer.completion.token_ids), list(answer.completion.token_log_probs)


def check_company(bundle, seed):
    """Hold answers to twelve questions that come at once to those of each alone."""
    requests = asked_of(seed)
    together = served(bundle, requests * 2)
    alone = served(bundle, requests, at_once=False)
    for answer, lone, again in zip(together, alone, together[len(requests) :], strict=False):
        assert bits(lone) == bits(answer) == bits(again)


@pytest.mark.slow
def test_who_else_asks_does_not_show_in_an_answer(florence2):
    """Tokens and scores have the same bits, whatever shares the batch."""
    check_company(florence2[2] / "m" / "1", 1)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
@pytest.mark.parametrize("kind", ASKING, ids=ids)
def test_nor_does_it_at_other_precisions(kind, precision, tmp_path):
    """The same of both kinds, where weights and activations are rounded too."""
    made_asking(kind, 2, tmp_path / "theirs")
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "theirs", bundle, ExportOptions(max_tokens=80, precision=precision))
    check_company(bundle, 2)


@pytest.mark.slow
def test_an_explanation_tells_the_picture_and_the_question_apart(florence2):
    """Both are shares of one attention, beside the mean of all places, and rows over each sum to 1."""
    (answer,) = served(florence2[2] / "m" / "1", asked_of(1)[:1], explain=common_pb2.Explain())
    alignment, rows = answer.alignment, len(answer.completion.token_ids)
    grid = alignment.grid_rows * alignment.grid_columns
    pieces = florence2[1].tokenizer(QUESTIONS[0])["input_ids"]
    assert len(pieces) == len(alignment.question_tokens)
    for weights, width in ((alignment.weights, grid), (alignment.question_weights, len(pieces))):
        np.testing.assert_allclose(np.reshape(weights, (rows, width)).sum(axis=1), 1, atol=1e-5)
    shares = np.add(alignment.source_mass, alignment.question_mass)
    assert (0 < shares).all()
    assert (shares < 1).all()


@pytest.mark.slow
@pytest.mark.e2e
def test_it_is_asked_by_the_sdk_the_command_and_http(florence2, tmp_path):
    """The same answer as transformers': by gRPC, by `weft answer`, by the RPC as JSON, and by OpenAI's route."""
    theirs, processor, models = florence2
    (picture,) = pictures(1, 3)
    inputs = processor(images=picture, text="<CAPTION>", return_tensors="pt")
    expected = processor.tokenizer.decode([each for each in their_greedy(theirs, inputs, NEW_TOKENS) if each > 1])
    path, data = tmp_path / "picture.png", file_of(picture)
    path.write_bytes(data)
    encoded = base64.b64encode(data).decode()
    asked = {"image": {"data": encoded}, "text": "<CAPTION>", "decoding": {"maxNewTokens": NEW_TOKENS}}
    content = [
        {"type": "text", "text": "<CAPTION>"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
    ]
    chat = {"model": "m", "max_tokens": NEW_TOKENS, "messages": [{"role": "user", "content": content}]}
    decoding = weft.Decoding(max_new_tokens=NEW_TOKENS)
    with ServerProcess(models, api_port=0) as server, weft.Client(server.target) as client:
        api = server.wait_for("listening")["api"]
        client.wait_until_ready(timeout=60)
        (model,) = client.list_models()
        assert FORMS == dict(model.question_forms)
        assert expected == client.answer(data, "<CAPTION>", decoding=decoding).text
        command = [*WEFT, "answer", str(path), "<CAPTION>", "--target", server.target]
        ran = subprocess.run(
            [*command, "--max-new-tokens", str(NEW_TOKENS)], capture_output=True, text=True, check=True
        )
        assert expected == ran.stdout.removesuffix("\n")
        assert expected == posted(api, "/weft.v1.AnswerService/Answer", asked)["completion"]["text"]
        assert expected == posted(api, "/v1/chat/completions", chat)["choices"][0]["message"]["content"]


def posted(address, route, body):
    """What a server answers to JSON."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("POST", route, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    read = answer.read()
    connection.close()
    assert 200 == answer.status, read
    return json.loads(read)


def test_words_that_stand_for_sentences_are_those_of_the_class(tmp_path):
    """Each form of Florence2Processor, alone or with something beside it; and a question without one."""
    _, processor = made_asking(FLORENCE2, 0, tmp_path)
    text = convert(tmp_path, ExportOptions(), filled=False).checkpoint.text
    forms = {**processor.task_prompts_without_inputs, **processor.task_prompts_with_input}
    assert forms == {each.token: each.text for each in text.question.forms}
    asked = ["What is red?", *processor.task_prompts_without_inputs]
    asked += [
        given for form in processor.task_prompts_with_input for given in (form, f" a {form} big cat ", f"{form}x")
    ]
    for question in asked:
        assert [asked_text(text, question)] == processor._construct_prompts(question)
    with pytest.raises(ValueError, match="must be '<OCR>' alone"):
        asked_text(text, "<OCR> here")


@pytest.mark.slow
def test_what_no_question_is_is_refused(florence2):
    """The token of a picture, as text or as an id, and words beside a form that stands alone."""
    _, processor, models = florence2
    image = {"data": file_of(*pictures(1))}

    async def refused():
        async with Loaded(models / "m" / "1", slots=2) as model:
            for question, why in (
                ({"text": "a <image> b"}, "spells the token of a picture"),
                ({"token_ids": {"ids": [301, processor.image_token_id]}}, "spells the token of a picture"),
                ({"text": "<OD> of cats"}, "must be '<OD>' alone"),
                ({"text": " "}, "must not be empty"),
                ({"text": "a" * 400}, "the model takes"),
            ):
                with pytest.raises(InvalidRequest, match=why):
                    await ask(model, image=image, **question)

    asyncio.run(refused())


def test_examples_and_texts_of_our_own_are_asked_of_the_encoder(tmp_path):
    """Held-out ones bring a question, which may be a word for a sentence. So has what rounding is measured with."""
    made_asking(FLORENCE2, 0, tmp_path)
    checkpoint = converted(tmp_path, max_tokens=80)
    (picture,) = pictures(1)
    write_held_out(tmp_path, [(file_of(picture), "a cat", "<CAPTION>")])
    (example,) = read_held_out(tmp_path / "held_out.jsonl", checkpoint)
    asked = asked_ids(checkpoint, "<CAPTION>")
    assert asked == list(example.asked_ids) == row_of(checkpoint, example).asked.tolist()
    ((_, ids, lengths), _), *_ = held_out_requests(checkpoint, [example])
    assert (asked, len(asked)) == (ids[0].tolist(), lengths.item())
    ((_, ids, lengths), _), *_ = own_requests(checkpoint)
    words = read_tokenizer(checkpoint, checkpoint.text.source_tokenizer).encode(OWN_TEXTS[0]).ids
    assert words[:128] == ids[0].tolist()
    assert ids.shape[1] == lengths.item()
    for question, wrong in (
        ("a <image>", "question spells the token of a picture"),
        ("<OD> a", "question must be '<OD>'"),
    ):
        with pytest.raises(CheckpointError, match=wrong):
            asked_ids(checkpoint, question)


def test_the_manuals_boxes_are_those_of_the_processor(tmp_path):
    """Of one label several boxes; a label without one, and three places, are none."""
    _, processor = made_asking(FLORENCE2, 0, tmp_path)
    (block,) = (each for each in blocks("docs/hugging-face.md", "python") if "def boxes" in each)
    shown = {}
    exec(block, shown)
    text = "car<loc_52><loc_333><loc_932><loc_774><loc_0><loc_1><loc_2><loc_999>green door <loc_9><loc_8><loc_7>"
    text += " sky wheel<loc_708><loc_557><loc_865><loc_772>"
    size = 640, 479
    expected = processor.post_processor.parse_description_with_bboxes_from_text_and_spans(text, size)
    assert [(each["cat_name"], each["bbox"]) for each in expected] == shown["boxes"](text, *size)


def without_port(graph, side, name):
    """Take a port out of a graph of a manifest."""

    def change(manifest):
        (found,) = (each for each in manifest.graphs if each.role == graph)
        ports = [port for port in getattr(found, side) if port.name != name]
        found.ClearField(side)
        getattr(found, side).extend(ports)

    return change


def nowhere(manifest):
    """A picture without a grid, whose question the decoder would read."""
    manifest.text.ClearField("question")
    manifest.image.grid_rows = manifest.image.grid_columns = 0


def shorter_memory(manifest):
    """A memory without room for the last token of the longest question."""
    state = next(each for each in manifest.states if each.kind == bundle_pb2.STATE_KIND_MEMORY)
    state.shape[state.length_axis] -= 1


WRONG = {
    "text.question is for answer": lambda manifest: setattr(manifest, "task", common_pb2.TASK_CAPTION),
    "has no token of text.question.image_id 327": lambda manifest: setattr(manifest.text.question, "image_id", 327),
    "image_id 328 is outside": lambda manifest: setattr(manifest.text.question, "image_id", 328),
    "grid_rows and grid_columns are missing": nowhere,
    "source positions": shorter_memory,
    "no input 'input_ids'": without_port(bundle_pb2.GRAPH_ROLE_ENCODER, "inputs", "input_ids"),
    "no output 'question_weights'": without_port(bundle_pb2.GRAPH_ROLE_EXPLAIN, "outputs", "question_weights"),
}


@pytest.mark.slow
@pytest.mark.parametrize("why", WRONG)
def test_a_manifest_that_says_otherwise_is_refused(why, florence2, tmp_path):
    """What the encoder reads is stated once, and the rest of a bundle fits it."""
    bundle = tmp_path / "m" / "1"
    shutil.copytree(florence2[2] / "m" / "1", bundle)
    manifest = json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())
    WRONG[why](manifest)
    (bundle / "bundle.json").write_text(json_format.MessageToJson(manifest))
    assert why in asyncio.run(refusal_of(bundle))


PROCESSOR, CONFIG = "processor_config.json", "config.json"
REFUSED = {
    "image_seq_length is 7": (FLORENCE2, PROCESSOR, "image_processor", {"image_seq_length": 7}),
    "has image_token_id 299": (FLORENCE2, CONFIG, "", {"image_token_id": 299}),
    "Microsoft's own files": (FLORENCE2, CONFIG, "vision_config", {"model_type": "davit"}),
    "projection_dim": (FLORENCE2, CONFIG, "vision_config", {"projection_dim": 7}),
    "depths": (FLORENCE2, CONFIG, "vision_config", {"depths": [1]}),
    "is less than a side of the grid": (FLORENCE2, CONFIG, "vision_config", {"max_position_embeddings": 1}),
    "has no room behind": (FLORENCE2, CONFIG, "text_config", {"max_position_embeddings": 20}),
    "known are bart": (FLORENCE2, CONFIG, "text_config", {"model_type": "t5"}),
    "tie_word_embeddings": (FLORENCE2, CONFIG, "", {"tie_word_embeddings": False}),
    "num_groups": (FLORENCE2, CONFIG, "vision_config", {"num_groups": [5, 5]}),
    "num_query_tokens is None": (BLIP2_T5, PROCESSOR, "", {"num_query_tokens": None}),
    "use_qformer_text_input": (BLIP2_T5, CONFIG, "qformer_config", {"use_qformer_text_input": True}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_refused_by_name(name, tmp_path):
    """Config, processor and tokenizer say together what a source is."""
    kind, file, part, changes = REFUSED[name]
    made_asking(kind, 0, tmp_path)
    convert(tmp_path, ExportOptions(), filled=False)
    change_within(tmp_path / file, part, **changes)
    with pytest.raises(CheckpointError, match=name):
        convert(tmp_path, ExportOptions(), filled=False)


@pytest.mark.parametrize("kind", ASKING, ids=ids)
def test_a_question_is_as_long_as_is_chosen(kind, tmp_path):
    """Of a Florence-2 it has room behind the picture, where it ends unless a length is chosen."""
    theirs, _ = made_asking(kind, 0, tmp_path)
    options = ExportOptions(max_source_tokens=40)
    check_class(theirs.config.to_dict() | {"architectures": [kind.architecture]}, options, embeds=False)
    assert 40 == convert(tmp_path, options, filled=False).checkpoint.text.max_source_tokens
    usual = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    assert {FLORENCE2: 256 - usual.model.config.num_places, BLIP2_T5: 512}[kind] == usual.text.max_source_tokens
    if kind is FLORENCE2:
        with pytest.raises(CheckpointError, match=f"the model takes {usual.text.max_source_tokens} tokens"):
            convert(tmp_path, ExportOptions(max_source_tokens=usual.text.max_source_tokens + 1), filled=False)


def test_a_tokenizer_that_frames_texts_otherwise_is_refused(tmp_path):
    """Florence2Processor writes both tokens itself, whatever the tokenizer does."""
    made_asking(FLORENCE2, 0, tmp_path)
    change_within(tmp_path / "tokenizer.json", "", post_processor=None)
    with pytest.raises(CheckpointError, match="and Florence2Processor"):
        convert(tmp_path, ExportOptions(), filled=False)


@pytest.mark.parametrize("options", [{"adapters": 2}, {"mixed_runs": True}, {"precision": "fp16", "paged": True}])
@pytest.mark.parametrize("kind", ASKING, ids=ids)
def test_an_option_that_is_not_for_them_is_refused_by_name(kind, options, tmp_path):
    """Before a weight is read."""
    made_asking(kind, 0, tmp_path / "theirs")
    with pytest.raises(ExportError, match=r"adapters|mixed|paged|blocks"):
        export_checkpoint(tmp_path / "theirs", tmp_path / "m" / "1", ExportOptions(**options))
