"""The asyncio client's verbs that ask about many inputs."""

from collections.abc import AsyncIterable, Iterable
from pathlib import Path
from typing import Unpack

from weft import _questions, _verb_options
from weft import _verbs as verbs
from weft._async_calls import AsyncCalls
from weft._async_many import AsyncMany
from weft._many import asking
from weft._recordings import Recording, Transcription
from weft._types import (
    Caption,
    Classification,
    Embeddings,
    Extraction,
    FilledMasks,
    Generation,
    Messages,
    Picture,
    Score,
    Tagging,
    Text,
    Translation,
)


class AsyncManyCalls(AsyncCalls):
    """What `AsyncClient` asks about many inputs: see `ManyCalls`."""

    def answer_many(
        self,
        questions: Iterable[tuple[Picture, Text]] | AsyncIterable[tuple[Picture, Text]],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.AnswerOptions],
    ) -> AsyncMany[_questions.Answer]:
        """Answer many questions, each about its picture, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.ANSWER_PAIR, options, questions=questions), concurrency, timeout)

    def transcribe_many(
        self,
        recordings: Iterable[Recording],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.TranscribeOptions],
    ) -> AsyncMany[Transcription]:
        """Write down many recordings, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.TRANSCRIBE, options, recordings=recordings), concurrency, timeout)

    def translate_many(
        self,
        texts: Iterable[Text] | AsyncIterable[Text],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.TranslateOptions],
    ) -> AsyncMany[Translation]:
        """Translate many texts, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.TRANSLATE, options, texts=texts), concurrency, timeout)

    def caption_many(
        self,
        images: Iterable[Picture] | AsyncIterable[Picture],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.CaptionOptions],
    ) -> AsyncMany[Caption]:
        """Describe many pictures, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.CAPTION, options, images=images), concurrency, timeout)

    def classify_many(
        self,
        texts: Iterable[Text] | AsyncIterable[Text] | None = None,
        *,
        images: Iterable[Picture] | AsyncIterable[Picture] | None = None,
        pairs: Iterable[tuple[str, str]] | AsyncIterable[tuple[str, str]] | None = None,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.ClassifyOptions],
    ) -> AsyncMany[Classification]:
        """Put many texts, pictures or pairs of texts, one of them, into a model's labels; see `AsyncMany`."""
        asked = asking(verbs.CLASSIFY_ONE, options, texts=texts, images=images, pairs=pairs)
        return self._many(asked, concurrency, timeout)

    def tag_many(
        self,
        texts: Iterable[Text] | AsyncIterable[Text],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.TagOptions],
    ) -> AsyncMany[Tagging]:
        """Tag many texts, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.TAG, options, texts=texts), concurrency, timeout)

    def extract_many(
        self,
        questions: Iterable[tuple[str, str]] | AsyncIterable[tuple[str, str]],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.ExtractOptions],
    ) -> AsyncMany[Extraction]:
        """Answer each of many pairs of a context and a question about it, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.EXTRACT_PAIR, options, questions=questions), concurrency, timeout)

    def fill_mask_many(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.FillMaskOptions],
    ) -> AsyncMany[FilledMasks]:
        """Fill the masks of many texts, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.FILL_MASK, options, texts=texts), concurrency, timeout)

    def generate_many(
        self,
        prompts: Iterable[Text] | AsyncIterable[Text] | None = None,
        *,
        messages: Iterable[Messages] | AsyncIterable[Messages] | None = None,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.GenerateOptions],
    ) -> AsyncMany[Generation]:
        """Continue many prompts, or go on with many chats, one of them, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.GENERATE, options, prompts=prompts, messages=messages), concurrency, timeout)

    def embed_many(
        self,
        texts: Iterable[Text] | AsyncIterable[Text] | None = None,
        *,
        images: Iterable[Picture] | AsyncIterable[Picture] | None = None,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.EmbedOptions],
    ) -> AsyncMany[Embeddings]:
        """Turn many texts or pictures, one of them, into vectors, a request for each; see `AsyncMany`."""
        return self._many(asking(verbs.EMBED_ONE, options, texts=texts, images=images), concurrency, timeout)

    def score_many(
        self,
        pairs: Iterable[tuple[Text | bytes | Path, Text]] | AsyncIterable[tuple[Text | bytes | Path, Text]],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        **options: Unpack[_verb_options.ScoreOptions],
    ) -> AsyncMany[Score]:
        """Tell how probable each target is behind its source, `concurrency` at a time; see `AsyncMany`."""
        return self._many(asking(verbs.SCORE_PAIR, options, pairs=pairs), concurrency, timeout)
