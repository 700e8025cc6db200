"""Reads off what a CTC model, which has a label for each moment of a recording, hears of it, word by word."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from weft_server.requests.segments import WINDOWS, check_room
from weft_server.source import Waveform

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
    from collections.abc import Sequence as Many

    import numpy as np

    from weft_proto.v1 import bundle_pb2
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.inputs import InputPart
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.sequence import Sequence

_BLANK = " "


class LabelRun(NamedTuple):
    """A label that is left of those that say the same: its index, and its moments, of which the likeliest is told."""

    label: int
    start: int
    end: int
    log_prob: float


class HeardWord(NamedTuple):
    """A word, and when it is said, in seconds from a recording's beginning."""

    text: str
    start_s: float
    end_s: float


class Heard(NamedTuple):
    """What is said in a window."""

    sequence: Sequence
    sound: Waveform
    text: str
    spoken: list[LabelRun]
    words: list[HeardWord]


async def hear(call: RequestContext, model: Model, read: Callable[[Wanted], list[InputPart]]) -> AsyncGenerator[Heard]:
    """Yield what is said in each window of a recording, in their order. All are admitted together, or none is.

    Raises:
        RequestError: the recording was refused, or there is no room for its windows, or the deadline passed.
    """
    engine = model.engine
    engine.reserve(call.standing, deadline=call.deadline)
    num_reserved = 1
    try:
        started = time.monotonic()
        parts = await model.work(read, call.deadline)
        model.metrics.preprocess.observe(time.monotonic() - started)
        check_room(WINDOWS, len(parts), engine.max_queued(call.standing))
        engine.reserve(call.standing, len(parts) - 1)
        num_reserved = len(parts)
        sequences = [call.sequence(part.source) for part in parts]
        engine.submit(*sequences)
    except BaseException:
        engine.release(call.standing, num_reserved)
        raise
    try:
        for sequence in sequences:
            await sequence.reply.done()
            yield read_off(sequence, model.manifest)
    finally:
        for sequence in sequences:
            engine.cancel(sequence)


def read_off(sequence: Sequence, manifest: bundle_pb2.BundleManifest) -> Heard:
    """Return what the labels of a window say that has been heard."""
    ctc, labels, sound = manifest.audio.ctc, manifest.labels, sequence.source
    assert isinstance(sound, Waveform), "only a waveform has labels for its moments. This is a bug."
    blank = labels[ctc.blank_id]
    spoken = [each for each in _merged(sequence.reply.values, labels) if labels[each.label] != blank]
    if ctc.word_start:
        # As SentencePiece has it, a text does not begin with a blank.
        said = [
            labels[each.label].replace(ctc.word_start, _BLANK if index else "") for index, each in enumerate(spoken)
        ]
        words = list(_begun_words(spoken, said, sound))
    else:
        said = [ctc.space if labels[each.label] == ctc.word_delimiter else labels[each.label] for each in spoken]
        words = list(_words(spoken, said, ctc.space, sound))
    text = "".join(said).strip()
    return Heard(sequence, sound, text.lower() if ctc.lower_case else text, spoken, words)


def _merged(values: np.ndarray, labels: Many[str]) -> Iterator[LabelRun]:
    """Yield a label for those behind each other that say the same.

    values: float32 [moments, 2], of each moment its label, and that label's log-probability.
    """
    ids, log_probs = values[:, 0].astype(int).tolist(), values[:, 1].tolist()
    for _, group in groupby(range(len(ids)), key=lambda moment: labels[ids[moment]]):
        moments = list(group)
        best = max(log_probs[moment] for moment in moments)
        yield LabelRun(ids[moments[0]], moments[0], moments[-1] + 1, best)


def _words(spoken: Iterable[LabelRun], said: Iterable[str], space: str, sound: Waveform) -> Iterator[HeardWord]:
    for is_space, group in groupby(zip(spoken, said, strict=True), key=lambda each: each[1] == space):
        if is_space:
            continue
        yield _word(list(group), sound)


def _begun_words(spoken: Iterable[LabelRun], said: Iterable[str], sound: Waveform) -> Iterator[HeardWord]:
    """Yield words of which the first label begins with a blank, or is the first of all."""
    of_word: list[tuple[LabelRun, str]] = []
    for label, text in zip(spoken, said, strict=True):
        if text.startswith(_BLANK) and of_word:
            yield _word(of_word, sound)
            of_word = []
        # A blank alone is no part of a word yet.
        if text.strip():
            of_word.append((label, text))
    if of_word:
        yield _word(of_word, sound)


def _word(of_word: Many[tuple[LabelRun, str]], sound: Waveform) -> HeardWord:
    start, end = of_word[0][0].start, of_word[-1][0].end
    return HeardWord(
        "".join(text for _, text in of_word).strip(),
        sound.start_s + start * sound.position_s,
        min(sound.start_s + end * sound.position_s, sound.end_s),
    )
