"""Pictures put into labels that come with the request: zero-shot classification by two towers."""

import asyncio

import numpy as np
import pytest

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.models.label_embeddings import LabelEmbedding, LabelEmbeddings
from weft_server.requests.zero_shot import probabilities_of
from weft_server.telemetry.metrics import Metrics

LABELS = ["cat", "dog", "green tree", "small house", "bird"]


def loaded(repository, **settings):
    """A model that matches."""
    return Loaded(repository / "tiny-match" / "1", **settings)


def picture(model):
    """The golden one."""
    return golden_request(model)["image"]


def scores(answer):
    """Each label's bits."""
    return {each.label: np.float32(each.score).tobytes() for each in answer.labels}


def lookups(model):
    """How many labels were found, and how many were not."""
    count = model.metrics.counters
    return tuple(count["label_cache_lookups_total", result].value for result in ("hit", "miss"))


def test_probabilities_are_the_softmax_of_scaled_cosines(tiny_repository):
    """Of the vectors that Embed gives of the picture and of the texts that the labels are put into."""

    async def run():
        async with loaded(tiny_repository) as model:
            answer = await ask(model, image=picture(model), labels=LABELS, label_text="a {} in the garden")
            texts = [{"text": f"a {label} in the garden"} for label in LABELS]
            (image,) = (await ask(model, inputs=[{"image": picture(model)}])).embeddings
            vectors = np.array([each.values for each in (await ask(model, inputs=texts)).embeddings])

            logits = model.manifest.matching.scale * vectors @ np.array(image.values)
            expected = np.exp(logits) / np.exp(logits).sum()
            found = {each.index: each.score for each in answer.labels}
            assert pytest.approx(dict(enumerate(expected)), abs=1e-6) == found
            assert [LABELS[each.index] for each in answer.labels] == [each.label for each in answer.labels]
            assert sorted(found.values(), reverse=True) == [each.score for each in answer.labels]

    asyncio.run(run())


def test_with_a_sigmoid_each_label_has_a_probability_of_its_own():
    """Of scaled cosine and bias (SigLIP), whatever other labels there are, and however large the scale."""
    vectors = np.array([[1, 0], [0.6, 0.8], [-1, 0]], np.float32)
    labels = [LabelEmbedding(each, 1) for each in vectors]
    manifest = bundle_pb2.BundleManifest(scoring=common_pb2.LABEL_SCORING_SIGMOID, matching={"scale": 3, "bias": -1})
    together = probabilities_of(vectors[0], labels, manifest)
    expected = 1 / (1 + np.exp(1 - 3 * np.array([1, 0.6, -1])))
    assert pytest.approx(expected.tolist(), abs=1e-6) == together.tolist()
    alone = [probabilities_of(vectors[0], [label], manifest)[0] for label in labels]
    assert np.array_equal(together, alone)

    manifest.matching.scale = 1_000_000
    assert [1, 1, 0] == probabilities_of(vectors[0], labels, manifest).tolist()


def test_an_answer_says_what_its_scores_are(tiny_repository):
    """A sigmoid, where the bundle says so; and then one label alone is not certain."""

    async def run():
        async with loaded(tiny_repository) as model:
            plain = await ask(model, image=picture(model), labels=LABELS[:1])
            model.manifest.scoring = common_pb2.LABEL_SCORING_SIGMOID
            answer = await ask(model, image=picture(model), labels=LABELS[:1])
            many = [f"{word} {number}" for word in LABELS for number in range(2)]
            every = await ask(model, image=picture(model), labels=many)
            assert sorted(many) == sorted(each.label for each in every.labels)  # how small it may be
            over = await ask(model, image=picture(model), labels=many, threshold=every.labels[3].score)
            assert every.labels[:4] == over.labels
            assert (common_pb2.LABEL_SCORING_UNSPECIFIED, 1.0) == (plain.scoring, plain.labels[0].score)
            assert common_pb2.LABEL_SCORING_SIGMOID == answer.scoring
            assert answer.labels[0].score < 1

    asyncio.run(run())


def test_labels_are_kept_with_their_bits(tiny_repository):
    """A label that was there before is not embedded again, and neither its company nor its order changes a bit."""

    async def run():
        async with loaded(tiny_repository) as model:
            first = await ask(model, image=picture(model), labels=LABELS)
            assert (0, len(LABELS)) == lookups(model)
            again = await ask(model, image=picture(model), labels=LABELS)
            assert (len(LABELS), len(LABELS)) == lookups(model)
            assert scores(first) == scores(again)
            assert first.usage.input_tokens == again.usage.input_tokens
            assert (0, True) == (first.usage.cached_tokens, 0 < again.usage.cached_tokens < again.usage.input_tokens)
            assert model.metrics.label_cache_bytes > 0

            model.label_vectors = LabelEmbeddings(model.metrics)
            one_by_one = [await ask(model, image=picture(model), labels=[label]) for label in LABELS[::-1]]
            assert {1.0} == {each.labels[0].score for each in one_by_one}
            assert scores(first) == scores(await ask(model, image=picture(model), labels=LABELS))
            crowd = [ask(model, image=picture(model), labels=LABELS[: 1 + index % 5]) for index in range(12)]
            assert scores(first) == scores((await asyncio.gather(*crowd))[4])

    asyncio.run(run())


def test_tenants_share_no_labels(tiny_repository):
    """Who is answered sooner would learn what another one asks."""

    async def run():
        async with loaded(tiny_repository) as model:
            for tenant in ("a", "b", "a"):
                await ask(model, tenant, image=picture(model), labels=LABELS)
            assert (len(LABELS), 2 * len(LABELS)) == lookups(model)

    asyncio.run(run())


def test_what_was_used_longest_ago_leaves():
    """The bytes stay within their bound, and count numbers, texts and what is around them."""
    metrics = Metrics().for_model("m", 1, "match")
    vector = LabelEmbedding(np.zeros(100, np.float32), 3)
    kept = LabelEmbeddings(metrics, max_bytes=3 * 1000)
    for text in ("ab", "cd", "ef"):
        kept.keep("", text, vector)
    assert 3 * (400 + 8 + 400) == metrics.label_cache_bytes
    assert kept.find("", "ab") is vector

    kept.keep("", "gh", vector)
    kept.keep("", "gh", vector)
    assert [None, vector] == [kept.find("", "cd"), kept.find("", "ab")]
    assert 3 * 808 == metrics.label_cache_bytes
    assert 1 == metrics.counters["label_cache_evictions_total", ""].value


def test_more_labels_than_may_wait_come_in_parts(tiny_repository):
    """They need no place each at one time. With no place at all, the request is refused."""

    async def run():
        async with loaded(tiny_repository, max_queued_requests=3) as model:
            labels = [f"{one} {other}" for one in LABELS for other in LABELS]
            answer = await ask(model, image=picture(model), labels=labels, top_k=25)
            assert pytest.approx(1, abs=1e-5) == sum(each.score for each in answer.labels)
            model.engine.reserve(count=3)
            with pytest.raises(Overloaded):
                await ask(model, image=picture(model), labels=[*labels, "cat"])
            model.engine.release(count=3)

    asyncio.run(run())


REFUSED = [
    ({"labels": []}, "labels", "EMPTY_INPUT"),
    ({"labels": ["cat", " "]}, "labels[1]", "EMPTY_INPUT"),
    ({"labels": ["cat", "dog", "cat"]}, "labels[2]", "INVALID_FIELD"),
    ({"labels": ["cat", "c" * 1025]}, "labels[1]", "INPUT_TOO_LONG"),
    ({"labels": ["cat", "dog " * 99]}, "labels[1]", "INPUT_TOO_LONG"),
    ({"labels": [str(number) for number in range(1025)]}, "labels", "INPUT_TOO_LONG"),
    ({"labels": ["cat"], "label_text": "a picture"}, "label_text", "INVALID_FIELD"),
    ({"labels": ["cat"], "label_text": "{} and {}"}, "label_text", "INVALID_FIELD"),
    ({"labels": ["cat"], "label_text": "{}" + "x" * 1024}, "label_text", "INVALID_FIELD"),
    ({"label_text": "a {}"}, "label_text", "INVALID_FIELD"),
    ({"labels": ["cat"], "top_k": 2}, "top_k", "INVALID_FIELD"),
    ({"labels": ["cat"], "text_pair": "x"}, "text_pair", "INVALID_FIELD"),
    ({"labels": ["cat"], "image": None, "text": "the cat"}, "labels", "INVALID_FIELD"),
    ({"labels": ["cat"], "image": {"data": b"no picture"}}, "image.data", "BAD_IMAGE"),
]


def test_what_is_wrong_is_named(tiny_repository):
    """By its place, before a picture is read where it is about labels; nothing is left behind."""

    async def run():
        async with loaded(tiny_repository) as model:
            for request, field, reason in REFUSED:
                with pytest.raises(InvalidRequest) as refused:
                    await ask(model, **{"image": picture(model), **request})
                assert (field, reason) == (refused.value.field, refused.value.reason)
                assert refused.value.message.startswith(f"{field} ")

    asyncio.run(run())


def test_a_model_with_labels_of_its_own_takes_no_others(tiny_repository):
    """It says so."""

    async def run():
        async with Loaded(tiny_repository / "tiny-image" / "1") as model:
            with pytest.raises(InvalidRequest, match=r"^labels are for models that take them, and 'tiny-image' has"):
                await ask(model, image=picture(model), labels=LABELS)

    asyncio.run(run())


def test_pictures_are_explained_and_texts_are_not(tiny_repository):
    """The row is what the picture's vector was read from, whatever the labels."""

    async def run():
        async with loaded(tiny_repository) as model:
            explain = common_pb2.Explain()
            answer = await ask(model, image=picture(model), labels=LABELS, explain=explain)
            embedded = await ask(model, inputs=[{"image": picture(model)}], explain=explain)
            assert [answer.labels[0].label] == list(answer.alignment.target_tokens)
            assert pytest.approx(1, abs=1e-5) == sum(answer.alignment.weights)
            assert list(embedded.alignment.weights) == list(answer.alignment.weights)
            with pytest.raises(InvalidRequest, match=r"^explain is for pictures"):
                await ask(model, inputs=[{"text": "cat"}], explain=explain)

    asyncio.run(run())
