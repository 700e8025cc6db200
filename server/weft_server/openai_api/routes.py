"""The table of routes: what answers which path, and how each names the fields of weft.v1 in its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft_server.openai_api import audio, chat, completions, embeddings, models_list, rerank, tokens
from weft_server.openai_api.errors import api_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from weft_server.openai_api.errors import ApiError
    from weft_server.openai_api.fields import RequestFields
    from weft_server.openai_api.http_messages import HttpRequest, HttpResponse, HttpStream


class Route(NamedTuple):
    """One route. `fields` are those of its body; None: it has none."""

    verb: str
    path: str
    handler: Callable[[HttpRequest], Awaitable[HttpResponse | HttpStream]]
    fields: RequestFields | None = None
    params: Mapping[str, str] = {}

    def error(self, error: BaseException) -> ApiError:
        """Return what a client hears of an exception that the handler raised."""
        return api_error(error, self.params)


ROUTES = (
    Route("GET", models_list.PATH, models_list.models),
    Route("GET", f"{models_list.PATH}/{{model}}", models_list.model),
    Route("POST", chat.PATH, chat.chat_completions, chat.FIELDS, chat.PARAMS),
    Route("POST", completions.PATH, completions.completions, completions.FIELDS, completions.PARAMS),
    Route("POST", embeddings.PATH, embeddings.embeddings, embeddings.FIELDS, embeddings.PARAMS),
    Route("POST", audio.TRANSCRIPTIONS_PATH, audio.transcriptions, audio.TRANSCRIPTION_FIELDS, audio.PARAMS),
    Route("POST", audio.TRANSLATIONS_PATH, audio.translations, audio.TRANSLATION_FIELDS, audio.PARAMS),
    Route("POST", rerank.RERANK_PATH, rerank.rerank, rerank.RERANK_FIELDS, rerank.RERANK_PARAMS),
    Route("POST", rerank.SCORE_PATH, rerank.score, rerank.SCORE_FIELDS, rerank.SCORE_PARAMS),
    Route("POST", tokens.TOKENIZE_PATH, tokens.tokenize, tokens.TOKENIZE_FIELDS, tokens.TOKENIZE_PARAMS),
    Route("POST", tokens.DETOKENIZE_PATH, tokens.detokenize, tokens.DETOKENIZE_FIELDS, tokens.DETOKENIZE_PARAMS),
)
