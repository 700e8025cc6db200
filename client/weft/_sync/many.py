# Made of _async/many.py by `make sync`: change that one.
"""Many inputs, asked a few at a time, and answered in their order."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc
from google.protobuf.message import Message

from weft import _completions
from weft._completions import Caption, Generation, Transcription, Translation
from weft._home import Home
from weft._many import Questions, Reader, Sending, asking, note
from weft._sync.calls import Calls
from weft._types import Messages, PictureFile, Recording, Text
from weft._verbs.classify import CLASSIFY_ONE, Classification, ClassifyOptions
from weft._verbs.embed import EMBED_ONE, Embeddings, EmbedOptions
from weft._verbs.extract import EXTRACT_PAIR, Extraction, ExtractOptions
from weft._verbs.fill_mask import FILL_MASK, FilledMasks, FillMaskOptions
from weft._verbs.score import SCORE_PAIR, Score, ScoreOptions
from weft._verbs.tag import TAG, Tagging, TagOptions
from weft._verbs.writing import (
    ANSWER_PAIR,
    CAPTION,
    GENERATE,
    TRANSCRIBE,
    TRANSLATE,
    AnswerOptions,
    CaptionOptions,
    GenerateOptions,
    TranscribeOptions,
    TranslateOptions,
)
from weft._window import Asked, Window, checked_concurrency
from weft.exceptions import Error

Answer = TypeVar("Answer")


class Many(Iterator[Answer | Error]):
    """Gives an answer, or a `weft.Error` in its place, for each input, in the order of the inputs.

    Inputs are read as they are needed, at most a few times `concurrency` before the answer that is taken; so they may
    be without end. They are read, and calls begin, while the next answer is waited for: who takes no answer asks for
    nothing more. A full server is waited for, as long as it says, up to `timeout` for each input; so is one that went
    away, once it has answered. As a context manager, or left behind half-read, it cancels what is in flight. One
    thread reads it.
    """

    def __init__(self, sending: Sending[Answer], home: Home) -> None:
        self._is_over = False
        self._why_over: BaseException | None = None
        self._sending = sending
        self._home = home
        self._ended: deque[Asked[Answer]] = deque()
        self._news = home.event()
        self._inputs = Reader(sending.inputs, self._news)
        self._window: Window[Answer] = Window(
            checked_concurrency(sending.concurrency), sending.patience_s, sending.reach, sending.wait_s
        )

    def cancel(self) -> None:
        """End it: what is in flight is cancelled, and the server frees its slots. Nothing more is read or given."""
        self._is_over = True
        self._why_over = None
        for call in self._window.clear():
            self._home.end(call.cancel)
        self._home.end(self._inputs.cancel)

    def or_raise(self) -> Iterator[Answer]:
        """Give the answers alone, and raise the first error: with it all ends."""
        with self:
            for answer in self:
                if isinstance(answer, Error):
                    raise answer
                yield answer

    def __iter__(self) -> Self:
        """Return self: answers are read once."""
        return self

    def __next__(self) -> Answer | Error:
        """Wait for the next answer."""
        self._home.check()
        while True:
            now = time.monotonic()
            self._send(now)
            if (outcome := self._window.take()) is not None:
                return outcome
            if self._is_over and not len(self._window):
                why, self._why_over = self._why_over, None  # of who gave the inputs, once
                raise why or StopIteration
            self._home.wait(self._news, self._window.pause_s(now))
            while self._ended:
                outcome = self._outcome(self._ended[0].call)  # first of all: this may be cancelled
                self._window.ended(self._ended.popleft(), outcome, time.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()
        self._inputs.close()

    def __del__(self) -> None:
        if hasattr(self, "_window"):
            self.cancel()

    def _send(self, now: float) -> None:
        """Begin as many calls as may run. Where inputs end or fail, what was read is answered first."""
        while self._window.may_send(now):
            if (asked := self._window.again(now)) is None:
                if self._is_over or self._window.is_full or not self._inputs.is_there():
                    return
                try:
                    asked = self._asked(self._inputs.take())
                except StopIteration:
                    self._is_over = True
                    return
                except Exception as error:  # noqa: BLE001 - whoever gave the inputs gets it, behind the answers
                    self._is_over, self._why_over = True, error
                    return
            if asked is not None:
                self._start(asked)

    def _asked(self, given: Any) -> Asked[Answer] | None:
        """Give what to ask for an input; None where that can't be asked."""
        try:
            request = self._sending.make(given)
        except Error as error:
            self._window.read(error)
            return None
        return self._window.read(request)

    def _start(self, asked: Asked[Answer]) -> None:
        try:
            call = self._sending.send(asked.request)
        except Error:  # the client is closed
            self.cancel()
            raise
        self._window.started(asked, call)
        call.add_done_callback(partial(note, self._ended, self._news, asked))

    def _outcome(self, call: Any) -> Answer | Error:
        reach = self._sending.reach
        try:
            return self._sending.read(reach.heard(self._home.result(call)))
        except grpc.RpcError as error:
            # The frames of its traceback hold this object: what is left behind would stay, and go on.
            return reach.error(error.with_traceback(None))
        except Error as error:
            return error.with_traceback(None)


class ManyCalls(Calls):
    """What a client asks about many inputs: a request for each, several at a time."""

    def _many(self, asked: Questions[Answer], concurrency: int, timeout: float | None) -> Many[Answer]:
        verb, inputs, make = asked
        self._home.check()

        def send(request: Message) -> Any:
            return self._open(self._home.begin(self._methods_now()[verb.path]), request, timeout)

        patience_s, wait_s = self._settings.limit_s(timeout), self._settings.wait
        sending = Sending(inputs, make, send, verb.read, self._reach, concurrency, patience_s, wait_s)
        return Many(sending, self._home)

    def answer_many(
        self,
        questions: Iterable[tuple[PictureFile, Text]],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Many[_completions.Answer]:
        """Answer many questions, each about its picture, `concurrency` at a time; see `Many`."""
        return self._many(asking(ANSWER_PAIR, options, questions=questions), concurrency, timeout)

    def transcribe_many(
        self,
        recordings: Iterable[Recording],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> Many[Transcription]:
        """Write down many recordings, `concurrency` at a time; see `Many`."""
        return self._many(asking(TRANSCRIBE, options, recordings=recordings), concurrency, timeout)

    def translate_many(
        self,
        texts: Iterable[Text],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[TranslateOptions],
    ) -> Many[Translation]:
        """Translate many texts, `concurrency` at a time; see `Many`."""
        return self._many(asking(TRANSLATE, options, texts=texts), concurrency, timeout)

    def caption_many(
        self,
        images: Iterable[PictureFile],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[CaptionOptions],
    ) -> Many[Caption]:
        """Describe many pictures, `concurrency` at a time; see `Many`."""
        return self._many(asking(CAPTION, options, images=images), concurrency, timeout)

    def classify_many(
        self,
        texts: Iterable[Text] | None = None,
        *,
        images: Iterable[PictureFile] | None = None,
        pairs: Iterable[tuple[str, str]] | None = None,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[ClassifyOptions],
    ) -> Many[Classification]:
        """Put many texts, pictures or pairs of texts, one of them, into a model's labels; see `Many`."""
        asked = asking(CLASSIFY_ONE, options, texts=texts, images=images, pairs=pairs)
        return self._many(asked, concurrency, timeout)

    def tag_many(
        self,
        texts: Iterable[Text],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[TagOptions],
    ) -> Many[Tagging]:
        """Tag many texts, `concurrency` at a time; see `Many`."""
        return self._many(asking(TAG, options, texts=texts), concurrency, timeout)

    def extract_many(
        self,
        questions: Iterable[tuple[str, str]],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[ExtractOptions],
    ) -> Many[Extraction]:
        """Answer each of many pairs of a context and a question about it, `concurrency` at a time; see `Many`."""
        return self._many(asking(EXTRACT_PAIR, options, questions=questions), concurrency, timeout)

    def fill_mask_many(
        self,
        texts: Iterable[str],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[FillMaskOptions],
    ) -> Many[FilledMasks]:
        """Fill the masks of many texts, `concurrency` at a time; see `Many`."""
        return self._many(asking(FILL_MASK, options, texts=texts), concurrency, timeout)

    def generate_many(
        self,
        prompts: Iterable[Text] | None = None,
        *,
        messages: Iterable[Messages] | None = None,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Many[Generation]:
        """Continue many prompts, or go on with many chats, one of them, `concurrency` at a time; see `Many`."""
        return self._many(asking(GENERATE, options, prompts=prompts, messages=messages), concurrency, timeout)

    def embed_many(
        self,
        texts: Iterable[Text] | None = None,
        *,
        images: Iterable[PictureFile] | None = None,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[EmbedOptions],
    ) -> Many[Embeddings]:
        """Turn many texts or pictures, one of them, into vectors, a request for each; see `Many`."""
        return self._many(asking(EMBED_ONE, options, texts=texts, images=images), concurrency, timeout)

    def score_many(
        self,
        pairs: Iterable[tuple[Text | bytes | Path, Text]],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Many[Score]:
        """Tell how probable each target is behind its source, `concurrency` at a time; see `Many`."""
        return self._many(asking(SCORE_PAIR, options, pairs=pairs), concurrency, timeout)
