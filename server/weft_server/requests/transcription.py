"""What is spoken: the language that a model tells of a recording, and the segments that it tells apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from weft_proto.sound import num_timestamps, spoken_ids
from weft_server.logits_processors.phrases import AllowedTokens
from weft_server.logits_processors.timestamps import Timestamps
from weft_server.sequence import Decoding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Sequence as Many

    from weft_proto.v1 import bundle_pb2, transcription_pb2
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.tokenizer import Tokenizer
    from weft_server.sequence import Sequence
    from weft_server.source import Sound, Source


class Transcribing(NamedTuple):
    """How a request wants its recording transcribed: what it says, and where it does not, what the bundle says."""

    language: str
    to_english: bool | None
    timestamps: bool


def transcribing_of(request: transcription_pb2.TranscribeRequest, audio: bundle_pb2.AudioSpec) -> Transcribing:
    """Return what a request wants. Its language is empty where the model tells it; to_english None: no task is said."""
    unsaid = audio.default_without_task and not request.language
    to_english = None if unsaid else audio.default_to_english
    only = audio.languages[0].tag if len(audio.languages) == 1 else ""
    return Transcribing(
        request.language or audio.default_language or only,
        request.to_english if request.HasField("to_english") else to_english,
        request.timestamps if request.HasField("timestamps") else audio.default_timestamps,
    )


class DecoderPrompt(NamedTuple):
    """What the decoder is fed behind its start token, and how probable it is that the language is right."""

    prefix_ids: tuple[int, ...]
    probability: float


class LanguageDetection(NamedTuple):
    """How a model tells the language of a recording, which its first window is heard for.

    It is the likeliest of the languages' tokens behind the start token (Radford et al. 2022, section 2.3).
    """

    audio: bundle_pb2.AudioSpec
    to_english: bool | None
    timestamps: bool

    def ask(self, call: RequestContext, source: Source) -> Sequence:
        """Return the sequence whose only token is that of a language. It is counted with those of the answer."""
        only = AllowedTokens(each.token_id for each in self.audio.languages)
        return call.sequence(source, Decoding(1, rules=(only,)), wants_scores=True, is_counted=True)

    def told(self, sequence: Sequence) -> DecoderPrompt:
        """Read its answer."""
        (token_id,), (log_prob,) = sequence.reply.token_ids, sequence.reply.log_probs
        tag = next(each.tag for each in self.audio.languages if each.token_id == token_id)
        ids = spoken_ids(self.audio, tag, to_english=self.to_english, timestamps=self.timestamps)
        return DecoderPrompt(ids, min(1.0, math.exp(log_prob)))


class Segment(NamedTuple):
    """What was said between two moments, in seconds from a recording's beginning."""

    start_s: float
    end_s: float
    text: str


def timestamps_of(audio: bundle_pb2.AudioSpec, end_ids: Iterable[int]) -> Timestamps:
    """Return the rule that an answer with moments keeps to."""
    latest = audio.max_first_timestamp if audio.HasField("max_first_timestamp") else None
    silent = audio.no_timestamps_id if audio.HasField("no_timestamps_id") else None
    return Timestamps(audio.first_timestamp_id, num_timestamps(audio), latest, silent, end_ids)


def timestamp_ids(audio: bundle_pb2.AudioSpec) -> range:
    """Return the ids of the tokens that say moments. There are none in a model that tells none."""
    return range(audio.first_timestamp_id, audio.first_timestamp_id + num_timestamps(audio))


def segments_of(
    token_ids: Many[int], sound: Sound, audio: bundle_pb2.AudioSpec, tokenizer: Tokenizer
) -> Iterator[Segment]:
    """Yield the segments of a window's answer: the text between two moments.

    What has no second moment, because the answer was too long, goes on to the window's end. No moment is behind it: a
    model may mean the silence that fills its window up.
    """
    step_s = audio.timestamp_samples / audio.sample_rate
    moments = timestamp_ids(audio)
    start_s, said = sound.start_s, []
    for token_id in token_ids:
        if token_id not in moments:
            said.append(token_id)
            continue
        at_s = min(sound.start_s + (token_id - moments.start) * step_s, sound.end_s)
        if text := tokenizer.decode(said):
            yield Segment(start_s, at_s, text)
        start_s, said = at_s, []
    if text := tokenizer.decode(said):
        yield Segment(start_s, sound.end_s, text)


def language_of(audio: bundle_pb2.AudioSpec, prefix_ids: Many[int]) -> str:
    """Return the tag of the language that a decoder was fed, or nothing."""
    return next((each.tag for each in audio.languages if each.token_id in prefix_ids), "")
