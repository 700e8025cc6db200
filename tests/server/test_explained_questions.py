"""What an answer about a picture attended to among the tokens of its question."""

import asyncio
import hashlib
import json
import shutil

import numpy as np
import onnx
import pytest
import torch
from samples import sample
from tiny_answers import ANSWERING

from loaded import Loaded, ask, golden_request, refusal_of
from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_proto.v1 import common_pb2
from weft_server.models.explainer import Explanation, Heat
from weft_server.runtime.session import Session

both = pytest.mark.parametrize("name", ANSWERING)
QUESTION = "the big cat sees a red bird"
HEADS = [(layer, head) for layer in range(2) for head in range(2)]


async def explained(model, question=QUESTION, **explain):
    """The answer to a question, with its alignment."""
    return await ask(model, **golden_request(model) | {"text": question, "explain": common_pb2.Explain(**explain)})


def over_question(alignment):
    """Weights and masses of a message, [rows, tokens of the question] and [rows]."""
    weights = np.array(alignment.question_weights, np.float32).reshape(-1, len(alignment.question_tokens))
    assert len(alignment.target_tokens) == len(weights) == len(alignment.question_mass)
    return weights, np.array(alignment.question_mass, np.float32)


@torch.inference_mode()
def seen_by_torch(name, ids, layer, head):
    """What each of ids attends to among ids by a head, [ids, ids], read off the products of an ordinary pass."""
    checkpoint = sample(name)
    model, pixels = checkpoint.model, read_picture("x.png", checkpoint.files["golden.png"], checkpoint.image)
    pixels, products = torch.from_numpy(pixels)[None], []
    layers = model.decoder.layers if name == "tiny-answer" else model.layers
    attention = layers[layer].self_attention if name == "tiny-answer" else layers[layer].attention
    hook = attention.qkv.register_forward_hook(lambda _, __, product: products.append(product[0]))
    if name == "tiny-git":
        before = model.cross_attention_cache(pixels)[layer][0][0, head]
        products.clear()  # the picture's own
        model.read(torch.tensor([ids]), model.cross_attention_cache(pixels))
    else:
        before = torch.zeros(0, 16)
        model.decode(torch.tensor([ids]), pixels)
    hook.remove()
    query, key, _ = products[-1].unflatten(1, (3, 2, 16))[:, :, head].unbind(1)
    scores = query @ torch.cat((before, key)).T / 4
    places = len(before)
    for row in range(len(ids)):
        scores[row, places + row + 1 :] = -torch.inf
    return scores.softmax(-1)[:, places:].numpy()


@both
def test_what_lights_up_of_a_question_is_torchs_attention(tiny_repository, name):
    """Of each head of each layer: the words of the question, at the rows that the answer's tokens came from."""

    async def answers():
        async with Loaded(tiny_repository / name / "1") as model:
            return [await explained(model, layer=layer, head=head) for layer, head in HEADS]

    checkpoint = sample(name)
    asked = read_tokenizer(checkpoint, "words.json").encode(QUESTION)
    for (layer, head), answer in zip(HEADS, asyncio.run(answers()), strict=True):
        weights, mass = over_question(answer.alignment)
        assert [*QUESTION.split(), "[END]"] == answer.alignment.question_tokens
        ids = [checkpoint.text.start_id, *asked.ids, *answer.completion.token_ids[:-1]]
        first, end = len(asked.ids), 1 + len(asked.ids)
        expected = seen_by_torch(name, ids, layer, head)[first:, 1:end]
        np.testing.assert_allclose(expected.sum(axis=1), mass, atol=1e-5)
        np.testing.assert_allclose(expected, weights * mass[:, None], atol=1e-5)
        np.testing.assert_allclose(1, weights.sum(axis=1), atol=1e-5)
        assert np.ptp(weights) > 0.1


@both
def test_picture_question_and_answer_share_an_attention_or_have_two(tiny_repository, name):
    """Before the words, the picture leaves the question the rest. As a memory, it takes nothing from it."""

    async def masses():
        async with Loaded(tiny_repository / name / "1") as model:
            alignment = (await explained(model, layer=0)).alignment
            return np.array(alignment.source_mass) + over_question(alignment)[1]

    together = asyncio.run(masses())
    assert (together.max() <= 1 + 1e-5) == (name == "tiny-git")


@both
def test_a_layer_of_a_question_is_the_average_of_its_heads(tiny_repository, name):
    """What all heads put on the question, averaged, is what the layer shows."""

    async def put(model, **explain):
        weights, mass = over_question((await explained(model, **explain)).alignment)
        return weights * mass[:, None]

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            for layer in range(2):
                each = [await put(model, layer=layer, head=head) for head in range(2)]
                np.testing.assert_allclose(np.mean(each, axis=0), await put(model, layer=layer), atol=1e-5)

    asyncio.run(run())


@both
def test_a_question_of_one_token_has_it_all(tiny_repository, name):
    """As token ids it has no end of its own."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            asked = golden_request(model, explain=common_pb2.Explain(), token_ids=common_pb2.TokenIds(ids=[7]))
            asked.pop("text")
            alignment = (await ask(model, **asked)).alignment
            assert model.source_tokenizer.pieces([7]) == alignment.question_tokens
            assert {1.0} == set(alignment.question_weights)

    asyncio.run(run())


def test_a_message_holds_what_was_computed(tiny_repository):
    """Weights come as they are, float32 for float32; mass without what rounding added."""
    rng = np.random.default_rng(9)

    async def run():
        async with Loaded(tiny_repository / "tiny-git" / "1") as model:
            weights, mass = rng.random((2, 7), np.float32), np.float32([1 + 1e-6, -1e-6])
            given = Explanation(weights, mass, Heat(weights, mass))
            model.explainer.explain = lambda *_: given
            alignment = (await explained(model)).alignment
            assert weights.tobytes() == np.array(alignment.question_weights, np.float32).tobytes()
            assert [1, 0] == alignment.question_mass

    asyncio.run(run())


def test_a_row_that_read_nothing_of_a_question_is_uniform(tiny_repository, monkeypatch):
    """Its share is 0, and no weight is NaN."""
    whole = Session.run

    def looking_elsewhere(session, feeds):
        made = whole(session, feeds)
        return made | {each: 0 * made[each] for each in ("target_weights",) if each in made}

    async def run():
        async with Loaded(tiny_repository / "tiny-git" / "1") as model:
            monkeypatch.setattr(Session, "run", looking_elsewhere)
            weights, mass = over_question((await explained(model)).alignment)
            assert {np.float32(1 / 8)} == set(weights.ravel())
            assert {0.0} == set(mass)

    asyncio.run(run())


def rewritten(bundle, directory, change):
    """Copy a bundle, and change its EXPLAIN graph, and what the manifest says of that. Digest and size are right."""
    shutil.copytree(bundle, directory)
    graph = onnx.load(directory / "explain.onnx", load_external_data=False)
    manifest = json.loads((directory / "bundle.json").read_text())
    change(graph.graph, next(each for each in manifest["graphs"] if each["path"] == "explain.onnx"))
    content = graph.SerializeToString()
    (directory / "explain.onnx").write_bytes(content)
    file = next(each for each in manifest["files"] if each["path"] == "explain.onnx")
    file |= {"sha256": hashlib.sha256(content).hexdigest(), "sizeBytes": str(len(content))}
    (directory / "bundle.json").write_text(json.dumps(manifest))
    return directory


def as_before(graph, stated):
    """It does not tell what lay on a question."""
    graph.output.remove(next(each for each in graph.output if each.name == "target_weights"))
    stated["outputs"] = [each for each in stated["outputs"] if each["name"] != "target_weights"]


def of_another_shape(graph, _):
    """The weights over the picture, under the name of those over the question."""
    for node in graph.node:
        node.output[:] = ["not_told" if each == "target_weights" else each for each in node.output]
    graph.node.append(onnx.helper.make_node("Identity", ["weights"], ["target_weights"]))


@both
def test_an_older_bundle_tells_of_its_picture_alone(tiny_repository, tmp_path, name):
    """It is ready, and explains as before."""

    async def alignment(directory):
        async with Loaded(directory) as model:
            return (await explained(model)).alignment

    newer = tiny_repository / name / "1"
    older = rewritten(newer, tmp_path / name / "1", as_before)
    told, new = asyncio.run(alignment(older)), asyncio.run(alignment(newer))
    assert new.question_tokens
    for field in ("question_tokens", "question_weights", "question_mass"):
        new.ClearField(field)
    assert new == told


@both
def test_what_the_graph_says_of_a_question_has_a_row_and_a_column_for_each_token(tiny_repository, tmp_path, name):
    """A graph whose output is of another shape is refused when it loads."""
    directory = rewritten(tiny_repository / name / "1", tmp_path / name / "1", of_another_shape)
    assert "target_weights has shape [" in asyncio.run(refusal_of(directory))
