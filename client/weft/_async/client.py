"""A client: one verb per call of the server."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import grpc

from weft._async.many import AsyncManyCalls
from weft._async.streams import AsyncStream
from weft._channel import CallSettings, health_check, open_channels
from weft._completions import Answer, Caption, Generation, Transcription, Translation
from weft._home import LoopHome
from weft._status import Reach
from weft._types import Messages, PictureFile, Recording, Text
from weft._verbs.classify import CLASSIFY, Classification, ClassifyOptions
from weft._verbs.embed import EMBED, Embeddings, EmbedOptions
from weft._verbs.extract import EXTRACT, Extraction, ExtractOptions
from weft._verbs.fill_mask import FILL_MASK, FilledMasks, FillMaskOptions
from weft._verbs.score import SCORE, Score, ScoreOptions
from weft._verbs.table import methods_on
from weft._verbs.tag import TAG, Tagging, TagOptions
from weft._verbs.tokenization import (
    DETOKENIZE,
    TOKENIZE,
    Detokenization,
    DetokenizeOptions,
    Tokenization,
    TokenizeOptions,
)
from weft._verbs.writing import (
    ANSWER,
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
from weft_proto.v1 import model_pb2_grpc as model_grpc


class AsyncClient(AsyncManyCalls):
    """Talks to Weft servers from asyncio. Made and used inside one running event loop; its tasks may share it.

    The verbs, options and errors are those of `Client`; the streams are read with `async for`. A cancelled task raises
    asyncio.CancelledError, as everywhere. A picture's path is read at once: give bytes where the loop can't wait.
    """

    def __init__(
        self,
        target: str = "localhost:7070",
        *,
        timeout: float = 60.0,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        metadata: Mapping[str, str] | None = None,
        priority: str | None = None,
        watch_health: bool | None = None,
        wait: float = 0.0,
        proxy: str | None = None,
    ) -> None:
        """Name the servers and what all calls share.

        Args:
            target: host:port, or any gRPC target; of several addresses behind one name, all are used in turn.
            timeout: Seconds that a call may take unless it says otherwise; `math.inf` for no end.
            credentials: For TLS, for instance `grpc.ssl_channel_credentials()`; None for plain text.
            token: A bearer token, sent with every call. It needs TLS, unless the server is on this machine.
            metadata: Sent with every call, for instance {"x-tenant": "blue"}.
            priority: "high", "normal" or "low": which requests go on first where some wait for a model. A server with
                tokens takes "high" of callers with the role high alone.
            watch_health: Whether to watch the servers' health, so that no call is lost while one drains. The watch
                carries no metadata, so by default there is none where `metadata` is given.
            wait: Seconds, within `timeout`, that a call may wait for a server that is not there, or has no room. It is
                made again until then, unless its answer has begun. `health` never waits.
            proxy: The HTTP proxy to go through, "http://host:port". By default that of the environment, and none to
                this machine.
        """
        self._home = LoopHome()
        self._settings = CallSettings.of(
            target,
            timeout,
            metadata,
            token=token,
            credentials=credentials,
            priority=priority,
            watch_health=watch_health,
            wait=wait,
            proxy=proxy,
        )
        self._reach = Reach(self._settings.target)
        self._connect()
        self._home.again_in_forks(self)

    def _connect(self) -> None:
        """Open the channels. They connect at the first call."""
        self._channel, self._control = open_channels(self._settings, grpc.aio.insecure_channel, grpc.aio.secure_channel)
        self._methods, self._methods_of_all = methods_on(self._channel), methods_on(self._control)
        self._model = model_grpc.ModelServiceStub(self._control)
        self._check = health_check(self._control)

    async def translate(
        self, text: Text, *, timeout: float | None = None, **options: Unpack[TranslateOptions]
    ) -> Translation:
        """Translate a text; `TranslateOptions` lists the options."""
        return await self._ask(TRANSLATE, timeout, text, **options)

    def stream_translate(
        self, text: Text, *, timeout: float | None = None, **options: Unpack[TranslateOptions]
    ) -> AsyncStream[Translation]:
        """Translate a text piece by piece; `TranslateOptions` lists the options."""
        return self._stream(TRANSLATE, timeout, text, **options)

    async def caption(
        self, image: PictureFile, *, timeout: float | None = None, **options: Unpack[CaptionOptions]
    ) -> Caption:
        """Describe a picture; `CaptionOptions` lists the options."""
        return await self._ask(CAPTION, timeout, image, **options)

    def stream_caption(
        self, image: PictureFile, *, timeout: float | None = None, **options: Unpack[CaptionOptions]
    ) -> AsyncStream[Caption]:
        """Describe a picture piece by piece; `CaptionOptions` lists the options."""
        return self._stream(CAPTION, timeout, image, **options)

    async def classify(
        self,
        text: Text | None = None,
        *,
        image: PictureFile | None = None,
        timeout: float | None = None,
        **options: Unpack[ClassifyOptions],
    ) -> Classification:
        """Put a text or a picture, one of them, into a model's labels; `ClassifyOptions` lists the options."""
        return await self._ask(CLASSIFY, timeout, text, image, **options)

    async def tag(self, text: Text, *, timeout: float | None = None, **options: Unpack[TagOptions]) -> Tagging:
        """Label each token of a text, and find the spans they form; `TagOptions` lists the options."""
        return await self._ask(TAG, timeout, text, **options)

    async def extract(
        self,
        context: str,
        question: str,
        *,
        timeout: float | None = None,
        **options: Unpack[ExtractOptions],
    ) -> Extraction:
        """Answer a question with spans of a context, best first; `ExtractOptions` lists the options."""
        return await self._ask(EXTRACT, timeout, context, question, **options)

    async def fill_mask(
        self, text: str, *, timeout: float | None = None, **options: Unpack[FillMaskOptions]
    ) -> FilledMasks:
        """Tell which tokens fit in the places of a text's masks, best first; `FillMaskOptions` lists the options."""
        return await self._ask(FILL_MASK, timeout, text, **options)

    async def generate(
        self,
        prompt: Text | None = None,
        *,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """Continue a prompt, or go on with a chat, one of them; `GenerateOptions` lists the options."""
        return await self._ask(GENERATE, timeout, prompt, messages, **options)

    def stream_generate(
        self,
        prompt: Text | None = None,
        *,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream[Generation]:
        """Do as `generate` does, piece by piece; `GenerateOptions` lists the options."""
        return self._stream(GENERATE, timeout, prompt, messages, **options)

    async def embed(
        self,
        texts: str | Iterable[Text] | None = None,
        *,
        images: PictureFile | Iterable[PictureFile] | None = None,
        timeout: float | None = None,
        **options: Unpack[EmbedOptions],
    ) -> Embeddings:
        """Turn a text or several, or pictures, into vectors by one request; `EmbedOptions` lists the options."""
        return await self._ask(EMBED, timeout, texts, images, **options)

    async def score(
        self,
        source: Text | bytes | Path,
        target: Text,
        *,
        timeout: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Score:
        """Tell how probable a model finds a target; `ScoreOptions` lists the options.

        The source is a text or prompt, for a captioning model a picture, or for a transcribing one a recording. Of a
        picture or a recording it is the path as a `Path`, or the bytes.
        """
        return await self._ask(SCORE, timeout, source, target, **options)

    async def tokenize(
        self,
        text: str | None = None,
        *,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[TokenizeOptions],
    ) -> Tokenization:
        """Cut a text, or a chat's prompt, one of them, into a model's tokens; `TokenizeOptions` lists the options."""
        return await self._ask(TOKENIZE, timeout, text, messages, **options)

    async def detokenize(
        self, token_ids: Sequence[int], *, timeout: float | None = None, **options: Unpack[DetokenizeOptions]
    ) -> Detokenization:
        """Make the text that tokens of a model stand for; `DetokenizeOptions` lists the options."""
        return await self._ask(DETOKENIZE, timeout, token_ids, **options)

    async def transcribe(
        self, audio: Recording, *, timeout: float | None = None, **options: Unpack[TranscribeOptions]
    ) -> Transcription:
        """Write down what is said in a recording; `TranscribeOptions` lists the options."""
        return await self._ask(TRANSCRIBE, timeout, audio, **options)

    def stream_transcribe(
        self, audio: Recording, *, timeout: float | None = None, **options: Unpack[TranscribeOptions]
    ) -> AsyncStream[Transcription]:
        """Write down what is said piece by piece; `TranscribeOptions` lists the options."""
        return self._stream(TRANSCRIBE, timeout, audio, **options)

    async def answer(
        self,
        image: PictureFile,
        question: Text,
        *,
        timeout: float | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Answer:
        """Answer a question about a picture; `AnswerOptions` lists the options."""
        return await self._ask(ANSWER, timeout, image, question, **options)

    def stream_answer(
        self,
        image: PictureFile,
        question: Text,
        *,
        timeout: float | None = None,
        **options: Unpack[AnswerOptions],
    ) -> AsyncStream[Answer]:
        """Answer a question about a picture piece by piece; `AnswerOptions` lists the options."""
        return self._stream(ANSWER, timeout, image, question, **options)

    async def close(self) -> None:
        """Cancel what is running and hang up."""
        self._home.check()
        self._reach.closed = True
        await self._channel.close()
        await self._control.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
