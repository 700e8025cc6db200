"""What a request for a transcription wants, where it says less than it may."""

import pytest

from weft_proto.v1 import bundle_pb2, transcription_pb2
from weft_server.requests.transcription import transcribing_of


@pytest.mark.parametrize(
    ("audio", "request_", "expected"),
    [
        ({}, {}, ("", False, False)),
        ({"default_to_english": True, "default_timestamps": True}, {}, ("", True, True)),
        ({"default_to_english": True}, {"to_english": False}, ("", False, False)),
        ({"default_timestamps": True}, {"timestamps": False}, ("", False, False)),
        ({"default_language": "es"}, {}, ("es", False, False)),
        ({"default_language": "es"}, {"language": "en"}, ("en", False, False)),
        ({"languages": [{"tag": "de"}]}, {}, ("de", False, False)),
        ({"languages": [{"tag": "de"}, {"tag": "en"}]}, {}, ("", False, False)),
        # Such a model is told no task where no language is named. Who names one, or a task, says one.
        ({"default_without_task": True}, {}, ("", None, False)),
        ({"default_without_task": True}, {"language": "en"}, ("en", False, False)),
        ({"default_without_task": True, "default_to_english": True}, {"language": "en"}, ("en", True, False)),
        ({"default_without_task": True}, {"to_english": True}, ("", True, False)),
    ],
)
def test_what_is_unsaid_is_the_models_own(audio, request_, expected):
    """Its language, its task and its moments, each for itself."""
    spec, request = bundle_pb2.AudioSpec(**audio), transcription_pb2.TranscribeRequest(**request_)
    assert expected == tuple(transcribing_of(request, spec))
