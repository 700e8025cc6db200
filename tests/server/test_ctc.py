"""Words that are read off labels of moments: their texts, and their times in the recording."""

from types import SimpleNamespace

import numpy as np
import pytest

from weft_proto.v1 import bundle_pb2
from weft_server.preprocessing.log_mel import Span
from weft_server.preprocessing.waveform import Waveforms
from weft_server.requests.ctc import read_off

LABELS = ["<pad>", "|", "a", "b"]
# A label for each 20 samples. The last moment of a window may reach beyond its end.
AUDIO = bundle_pb2.AudioSpec(sample_rate=4000, hop_size=20, num_frames=100)
AUDIO.ctc.CopyFrom(bundle_pb2.CtcSpec(blank_id=0, word_delimiter="|", space=" ", min_samples=10))
MANIFEST = bundle_pb2.BundleManifest(audio=AUDIO, labels=LABELS)


def words(said, num_samples, first=0):
    """(text, first sample, last sample) of each word of a window whose moments have these labels."""
    sound = Waveforms(AUDIO).source(np.zeros(first + num_samples + 7, np.float32), Span(first, first + num_samples))
    values = np.array([(LABELS.index(label), -0.5) for label in said], np.float32)
    heard = read_off(SimpleNamespace(source=sound, reply=SimpleNamespace(values=values)), MANIFEST)
    assert heard.text.split() == [word.text for word in heard.words]
    return [(word.text, pytest.approx(4000 * word.start_s), pytest.approx(4000 * word.end_s)) for word in heard.words]


@pytest.mark.parametrize("first", [0, 400])
def test_a_word_lasts_from_its_first_label_to_its_last(first):
    """Labels that follow each other are one, blanks are none, and a delimiter ends a word."""
    found = words(["a", "a", "<pad>", "a", "|", "|", "b"], 140, first)
    assert [("aa", first, first + 80), ("b", first + 120, first + 140)] == found


def pieces(*said):
    """The text, and (text, first sample, last sample) of each word, of a window whose labels are pieces of words."""
    audio, labels = bundle_pb2.AudioSpec(), ["<pad>", *dict.fromkeys(said)]
    audio.CopyFrom(AUDIO)
    audio.ctc.word_delimiter, audio.ctc.word_start = "", "_"
    sound = Waveforms(audio).source(np.zeros(20 * len(said), np.float32), Span(0, 20 * len(said)))
    values = np.array([(labels.index(label), -0.5) for label in said], np.float32)
    sequence = SimpleNamespace(source=sound, reply=SimpleNamespace(values=values))
    heard = read_off(sequence, bundle_pb2.BundleManifest(audio=audio, labels=labels))
    return heard.text, [(word.text, round(4000 * word.start_s), round(4000 * word.end_s)) for word in heard.words]


def test_a_piece_that_begins_a_word_ends_the_one_before():
    """The first word needs no such piece, and a mark alone is of no word."""
    assert ("ab c", [("ab", 0, 60), ("c", 80, 120)]) == pieces("_a", "b", "b", "<pad>", "_c", "_c")
    assert ("a bc", [("a", 0, 20), ("bc", 40, 80)]) == pieces("a", "_", "b", "c")
    assert ("", []) == pieces("<pad>", "_")


def test_no_word_lasts_beyond_its_window():
    """The last moment has fewer samples than the others."""
    assert [("a", 0, 20), ("b", 40, 50)] == words(["a", "|", "b"], 50)
