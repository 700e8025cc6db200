"""What a server says of a model before one asks it: the limits that hold, and what is taken."""

import asyncio

import pytest
from google.protobuf import json_format

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.config import read_config
from weft_server.errors import InvalidRequest
from weft_server.loading.model_card import card_of

SETTINGS = {"max_audio_bytes": 50_000, "max_audio_s": 7, "max_image_bytes": 60_000, "max_image_pixels": 900}


def card(repository, name, talk=None):
    """The card of a tiny model, and what somebody heard who talked to it."""

    async def run():
        async with Loaded(repository / name / "1", **SETTINGS) as model:
            config = read_config(repository=repository / name / "1", **SETTINGS)
            return await card_of(model, config), await talk(model) if talk else None

    return asyncio.run(run())


def test_a_model_that_hears_says_how_long_and_how_much(tiny_repository):
    """Its window, the server's limits on a recording, one output and no constraint; and so it is refused."""

    async def refused(model):
        found = []
        for decoding in ({"constraint": {"regex": "a"}}, {"beams": {"num_beams": 2}, "num_outputs": 2}):
            with pytest.raises(InvalidRequest) as error:
                await ask(model, **golden_request(model, decoding=common_pb2.Decoding(**decoding)))
            found.append(error.value.field)
        return found

    said, fields = card(tiny_repository, "tiny-speech", refused)
    limits = said.limits
    assert (50_000, 7, pytest.approx(0.4)) == (limits.max_audio_bytes, limits.max_audio_s, limits.window_s)
    assert (1, False) == (limits.max_outputs, said.takes_constraints)
    assert ["decoding.constraint", "decoding.num_outputs"] == fields
    assert (0, 0) == (limits.max_image_bytes, limits.max_image_pixels)


def test_a_model_that_answers_says_how_long_a_question_may_be(tiny_repository):
    """Beside the limits on a picture. It hears nothing."""
    limits = card(tiny_repository, "tiny-git")[0].limits
    assert (60_000, 900, 24) == (limits.max_image_bytes, limits.max_image_pixels, limits.max_source_tokens)
    assert (0, 0, 0) == (limits.max_audio_bytes, limits.max_audio_s, limits.window_s)


def test_a_model_says_how_large_its_bundle_is(tiny_repository):
    """All that its manifest lists, as it lies on the disk."""
    bundle = tiny_repository / "tiny-clip" / "1"
    sizes = [path.stat().st_size for path in bundle.iterdir() if path.name != "bundle.json"]
    assert sum(sizes) == card(tiny_repository, "tiny-clip")[0].size_bytes


@pytest.mark.parametrize("name", ["tiny-clip", "tiny-convnext"])
def test_a_model_says_how_its_labels_are_scored(tiny_repository, name):
    """As its manifest has it, and what stands around a label that a caller gives."""
    manifest = bundle_pb2.BundleManifest()
    json_format.Parse((tiny_repository / name / "1" / "bundle.json").read_text(), manifest)
    said = card(tiny_repository, name)[0]
    assert (manifest.scoring, manifest.matching.label_text) == (said.label_scoring, said.label_text)
    assert manifest.scoring


@pytest.mark.parametrize("tells", [False, True])
def test_a_model_whose_manifest_has_moments_tells_them(tiny_repository, tells):
    """It has a first token of them."""

    async def run():
        async with Loaded(tiny_repository / "tiny-speech" / "1") as model:
            model.manifest.audio.ClearField("first_timestamp_id")
            if tells:
                model.manifest.audio.first_timestamp_id = 5
            return await card_of(model, read_config(repository=tiny_repository.folder))

    assert tells == asyncio.run(run()).tells_timestamps


def test_a_context_is_no_second_text(tiny_repository):
    """A model that finds answers in one has a separator, and takes no pairs to judge. It sees nothing."""
    said = card(tiny_repository, "tiny-extract")[0]
    assert (False, False) == (said.takes_pairs, said.takes_pictures)


def test_a_model_that_sees_says_so(tiny_repository):
    """Pictures stand in the messages of a chat."""
    said = card(tiny_repository, "tiny-llava")[0]
    assert (True, True, False) == (said.takes_pictures, said.takes_messages, said.takes_pairs)
