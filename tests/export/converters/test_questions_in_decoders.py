"""Models of others whose decoder reads a question about a picture, or nothing: GIT, Donut."""

import asyncio
import base64
import subprocess

import numpy as np
import pytest
import torch
import transformers
from hf_models import LOGITS, NUM_LONG, converted, furthest, greedy
from PIL import Image
from prompted_kinds import DONUT, GIT, PROMPTED, ids_of, inputs_of, logits_of, made_prompted, written_by
from sight_kinds import DECODING, NEW_TOKENS, pictures
from test_questions_in_encoders import posted, served
from test_splitting import change_within
from test_tiles import file_of

import weft
from loaded import Loaded, ask
from process import ServerProcess
from terminal import WEFT
from weft_export.checkpoints.framing import asked_ids
from weft_export.checkpoints.picture import read_picture
from weft_export.converters.classes import check_class
from weft_export.converters.convert import convert
from weft_export.converters.image_processor import read_image_spec
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.images import load_picture

ids = [kind.name for kind in PROMPTED]
QUESTIONS = {
    GIT: ("What is red?", ""),
    DONUT: ("<s_question>What is the total?</s_question><s_answer>", ""),
}


def check(kind, seed, directory):
    """Hold one random model to transformers: pixels, ids, logits, and greedy tokens of two at once."""
    theirs, processor = made_prompted(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=60)
    rows, written = [], []
    for picture, question in zip(pictures(2, seed), QUESTIONS[kind], strict=True):
        inputs = inputs_of(kind, processor, picture, question)
        pixels = read_picture("", file_of(picture), ours.image)
        assert np.abs(pixels - inputs["pixel_values"][0].numpy()).max() <= 1e-5
        given = [ours.text.start_id, *(asked_ids(ours, question) if question else [])]
        assert [given] == ids_of(inputs).tolist()
        with torch.inference_mode():
            expected = logits_of(theirs, inputs)
            actual = ours.model.decode(ids_of(inputs), inputs["pixel_values"])
        assert LOGITS >= furthest(actual, expected)
        written.append(written_by(theirs, inputs, NEW_TOKENS))
        rows.append(Row(torch.from_numpy(pixels), given))
    assert written == greedy(ours, rows, NEW_TOKENS)


@pytest.mark.parametrize("kind", PROMPTED, ids=ids)
def test_it_writes_what_transformers_writes(kind, tmp_path):
    """Logits within 1e-4 at every place, and the same 24 greedy tokens to a question and to none."""
    check(kind, 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", PROMPTED, ids=ids)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)


@pytest.fixture(scope="module", params=PROMPTED, ids=ids)
def prompted(request, tmp_path_factory):
    """A kind, a model of theirs, its processor, and the repository with the bundle of it."""
    directory = tmp_path_factory.mktemp(request.param.name)
    theirs, processor = made_prompted(request.param, 1, directory / "theirs")
    export_checkpoint(directory / "theirs", directory / "models" / "m" / "1", ExportOptions(max_tokens=60))
    return request.param, theirs, processor, directory / "models"


def written(prompted, picture, question):
    """The tokens that generate() writes behind a question, and their text: of a Donut with all that has no name."""
    kind, theirs, processor, _ = prompted
    tokens = written_by(theirs, inputs_of(kind, processor, picture, question), NEW_TOKENS)
    left_out = (300, 301, 302, *((0, 1) if kind is GIT else ()))
    unnamed = [token for token in tokens if token not in left_out]
    return tokens, processor.tokenizer.decode(unnamed)


@pytest.mark.slow
def test_it_is_served_as_transformers_generates(prompted):
    """The same greedy tokens to two pictures, each with a question, with another and with none, all at once."""
    asked = [(picture, question) for picture in pictures(2, 1) for question in (*QUESTIONS[prompted[0]], "Why")]
    answers = [answer.completion for answer in served(prompted[3] / "m" / "1", asked)]
    assert [written(prompted, *each) for each in asked] == [(list(each.token_ids), each.text) for each in answers]
    assert 4 <= len({each.text for each in answers})


@pytest.mark.slow
def test_a_question_of_spaces_is_none_and_one_that_is_too_long_is_refused(prompted):
    """Of 60 places for words a question may have 30. What was looked at is told of no question, too."""
    (picture,) = pictures(1)
    image = {"data": file_of(picture)}

    async def run():
        async with Loaded(prompted[3] / "m" / "1", slots=2) as model:
            first, other = [await ask(model, image=image, text=text, decoding=DECODING) for text in ("", " \n")]
            assert first.completion.token_ids == other.completion.token_ids
            await ask(model, image=image, text="a" * 30, decoding=DECODING)
            with pytest.raises(InvalidRequest, match="the model takes 30 tokens"):
                await ask(model, image=image, text="a" * 31)
            for question in ("", "Why"):
                told = (await ask(model, image=image, text=question, decoding=DECODING, explain={})).alignment
                assert len(question) == len(told.question_tokens)
                assert len(told.target_tokens) * told.grid_rows * told.grid_columns == len(told.weights)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.e2e
def test_it_is_asked_by_the_sdk_the_command_and_http(prompted, tmp_path):
    """A question and none: by gRPC, by `weft answer`, by the RPC as JSON, and by OpenAI's route."""
    (picture,) = pictures(1, 3)
    path, data = tmp_path / "picture.png", file_of(picture)
    path.write_bytes(data)
    encoded = base64.b64encode(data).decode()
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}
    with ServerProcess(prompted[3], api_port=0) as server, weft.Client(server.target) as client:
        api = server.wait_for("listening")["api"]
        client.wait_until_ready(timeout=60)
        for question in QUESTIONS[prompted[0]]:
            _, expected = written(prompted, picture, question)
            decoding = weft.Decoding(max_new_tokens=NEW_TOKENS)
            assert expected == client.answer(data, question, decoding=decoding).text
            command = [*WEFT, "answer", str(path), question, "--target", server.target]
            command += ["--max-new-tokens", str(NEW_TOKENS)]
            ran = subprocess.run(command, capture_output=True, check=True)
            assert f"{expected}\n".encode() == ran.stdout
            asked = {"image": {"data": encoded}, "text": question, "decoding": {"maxNewTokens": NEW_TOKENS}}
            assert expected == posted(api, "/weft.v1.AnswerService/Answer", asked)["completion"]["text"]
            content = [shown, *([{"type": "text", "text": question}] if question else [])]
            chat = {"model": "m", "max_tokens": NEW_TOKENS, "messages": [{"role": "user", "content": content}]}
            assert expected == posted(api, "/v1/chat/completions", chat)["choices"][0]["message"]["content"]


SIZES = [(31, 22), (20, 40), (300, 30), (30, 300), (7, 7), (36, 48), (48, 36), (37, 48), (36, 49), (2, 60)]


@pytest.mark.parametrize("page", [(48, 36), (36, 48), (40, 40)])
@pytest.mark.parametrize("size", SIZES)
def test_a_page_has_the_pixels_of_its_processor_and_lies_where_it_is_said_to(size, page):
    """Pictures of every shape, on pages upright and lying: exactly. What is outside of a picture is black."""
    drawn = np.random.default_rng(0).integers(60, 256, (*size[::-1], 3), np.uint8)
    sides = {"height": page[0], "width": page[1]}
    theirs = transformers.DonutImageProcessorPil(size=sides)
    spec = read_image_spec(theirs.to_dict(), "vision-encoder-decoder", 3)
    assert spec == read_image_spec({**theirs.to_dict(), "size": [page[1], page[0]]}, "vision-encoder-decoder", 3)
    expected = theirs(Image.fromarray(drawn), return_tensors="np")["pixel_values"][0]
    file = file_of(Image.fromarray(drawn))
    pixels, region = load_picture(file, spec, len(file), 10**6)
    np.testing.assert_array_equal(expected, pixels)
    np.testing.assert_array_equal(expected, read_picture("", file, spec))
    # The edges of the page, in shares of the picture: from these follows where the picture lies on it.
    left, top, right, bottom = region or (0, 0, 1, 1)
    across, down = page[1] / (right - left), page[0] / (bottom - top)
    lies = (pixels > -1).any(axis=0)
    for start, stop, seen in (
        (-left * across, (1 - left) * across, lies.any(0)),
        (-top * down, (1 - top) * down, lies.any(1)),
    ):
        assert [round(start), round(stop)] == [seen.argmax(), len(seen) - seen[::-1].argmax()]


@pytest.mark.parametrize("options", [{"mixed_runs": True}, {"precision": "fp16", "paged": True}])
@pytest.mark.parametrize("kind", PROMPTED, ids=ids)
def test_an_option_that_is_not_for_it_is_refused_by_name(kind, options, tmp_path):
    """Before a weight is read, and by the class."""
    theirs, _ = made_prompted(kind, 0, tmp_path / "theirs")
    with pytest.raises(ExportError, match=r"mixed|paged|blocks"):
        export_checkpoint(tmp_path / "theirs", tmp_path / "m" / "1", ExportOptions(**options))
    config = theirs.config.to_dict() | {"architectures": [kind.architecture]}
    with pytest.raises(CheckpointError, match=rf"is not for {kind.architecture}"):
        check_class(config, ExportOptions(**options), embeds=False)


CONFIG, PROCESSOR = "config.json", "processor_config.json"
REFUSED = {
    "num_image_with_embedding": (GIT, CONFIG, "", {"num_image_with_embedding": 6}),
    "says decoder_start_token_id": (DONUT, CONFIG, "", {"decoder_start_token_id": None}),
    "do_align_long_axis": (DONUT, PROCESSOR, "image_processor", {"do_align_long_axis": True}),
    "do_pad": (DONUT, PROCESSOR, "image_processor", {"do_pad": False}),
    "resample is 0": (DONUT, PROCESSOR, "image_processor", {"resample": 0}),
    "and do_center_crop false": (DONUT, PROCESSOR, "image_processor", {"size": {"shortest_edge": 24}}),
    "only 'mbart' is": (DONUT, CONFIG, "decoder", {"model_type": "bart"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_by_name(name, tmp_path):
    """Frames of a video, a prompt without its first token, pages that are turned or not filled up."""
    kind, file, part, changes = REFUSED[name]
    made_prompted(kind, 0, tmp_path)
    (tmp_path / "generation_config.json").unlink()
    convert(tmp_path, ExportOptions(), filled=False)
    change_within(tmp_path / file, part, **changes)
    with pytest.raises(CheckpointError, match=name):
        convert(tmp_path, ExportOptions(), filled=False)


@pytest.mark.parametrize("kind", PROMPTED, ids=ids)
def test_lengths_are_chosen(kind, tmp_path):
    """A question takes from what is left for an answer."""
    made_prompted(kind, 0, tmp_path)
    text = convert(tmp_path, ExportOptions(max_tokens=50, max_source_tokens=9), filled=False).checkpoint.text
    assert (9, 41) == (text.max_source_tokens, text.max_new_tokens)
    usual = convert(tmp_path, ExportOptions(), filled=False).checkpoint.text
    assert usual.max_source_tokens == usual.max_new_tokens == {GIT: 60, DONUT: 96}[kind] // 2
