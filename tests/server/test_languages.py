"""Languages that a request names: what its model is fed for them, and what is refused by the request's own field."""

from types import SimpleNamespace

import pytest

from weft_proto.v1 import bundle_pb2, common_pb2, score_pb2
from weft_server.errors import InvalidRequest
from weft_server.rpc.languages import frame_of


def model_of(**audio):
    """One that hears two languages and, with a `translate_id`, translates into English."""
    spec = bundle_pb2.AudioSpec(transcribe_id=7, no_timestamps_id=9, **audio)
    spec.languages.add(tag="en", token_id=3)
    spec.languages.add(tag="es", token_id=4)
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSCRIBE, audio=spec)
    return SimpleNamespace(name="m", manifest=manifest)


@pytest.mark.parametrize(
    ("source", "target", "ids"), [("es", "", (4, 7, 9)), ("ES", "en", (4, 8, 9)), ("en", "EN", (3, 8, 9))]
)
def test_what_was_said_and_its_translation_have_their_tokens(source, target, ids):
    """The language that is spoken, then the task, then that no moments are told."""
    request = score_pb2.ScoreRequest(source_language=source, target_language=target)
    assert ids == frame_of(model_of(translate_id=8), request).prefix


@pytest.mark.parametrize(
    ("source", "target", "audio", "field"),
    [
        ("tlh", "", {}, "source_language"),
        ("", "", {}, "source_language"),
        ("es", "fr", {"translate_id": 8}, "target_language"),
        ("es", "en", {}, "target_language"),
    ],
    ids=["unknown", "unsaid", "into another", "no translator"],
)
def test_a_language_that_a_model_has_not_is_refused_by_the_request_s_own_field(source, target, audio, field):
    """Not by that of a recording, which the caller has not sent."""
    with pytest.raises(InvalidRequest) as refused:
        frame_of(model_of(**audio), score_pb2.ScoreRequest(source_language=source, target_language=target))
    assert field == refused.value.field
