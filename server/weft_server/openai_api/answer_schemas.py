"""JSON Schemas of the endpoints' answers, for /openapi.json. Each whole answer of a test is held to them."""

from __future__ import annotations

from typing import Any

from weft_server.api.message_schemas import reference
from weft_server.openai_api import audio, chat, completions, embeddings, models_list, rerank, tokenize

_TEXT, _INTEGER, _NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
_VECTOR = {"anyOf": [{"type": "array", "items": _NUMBER}, _TEXT]}
_OBJECT = {"type": "object"}
_CREATED = {"type": "integer", "description": "Seconds since 1970."}
_SECONDS = {"type": "number", "description": "In seconds."}
_VERSION = {"type": "string", "description": "The model and its version that answered."}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _shape(*optional: str, **fields: dict[str, Any]) -> dict[str, Any]:
    """An object. Fields that are not `optional` are always there."""
    return {"type": "object", "properties": fields, "required": [name for name in fields if name not in optional]}


_TOKEN = {"token": _TEXT, "logprob": _NUMBER, "bytes": _or_null(_list(_INTEGER))}
_CALL = _shape(id=_TEXT, type=_TEXT, function=_shape(name=_TEXT, arguments=_TEXT))
_MESSAGE = _shape(
    "tool_calls",
    "reasoning_content",
    role=_TEXT,
    content=_or_null(_TEXT),
    refusal={"type": "null"},
    tool_calls=_list(_CALL),
    reasoning_content=_TEXT,
)
_END = {"index": _INTEGER, "finish_reason": {"type": "string", "description": "`stop`, `length` or `tool_calls`."}}
_CHAT_CHOICE = _shape(**_END, message=_MESSAGE, logprobs=_or_null(reference("ChatLogProbs")))
_CHOICE = _shape(**_END, text=_TEXT, logprobs=_or_null(reference("LogProbs")))
_TEXT_ANSWER = {
    "id": _TEXT,
    "object": _TEXT,
    "created": _CREATED,
    "model": _TEXT,
    "usage": reference("Usage"),
    "system_fingerprint": _VERSION,
    "alignment": {"type": "object", "description": "If `explain` was asked for: the message of weft.v1."},
}
_ABOUT = {"model": _TEXT, "system_fingerprint": _VERSION, "usage": reference("InputUsage")}
_HEARD_USAGE = _shape("seconds", "input_tokens", "output_tokens", "total_tokens", type=_TEXT, seconds=_NUMBER,
    input_tokens=_INTEGER, output_tokens=_INTEGER, total_tokens=_INTEGER)  # fmt: skip
SCHEMAS: dict[str, dict[str, Any]] = {
    "Model": _shape(id=_TEXT, object=_TEXT, created=_INTEGER, owned_by=_TEXT, task=_TEXT),
    "ModelList": _shape(object=_TEXT, data=_list(reference("Model"))),
    "Usage": _shape(
        prompt_tokens=_INTEGER,
        completion_tokens=_INTEGER,
        total_tokens=_INTEGER,
        prompt_tokens_details=_shape(cached_tokens=_INTEGER),
    ),
    "InputUsage": _shape(prompt_tokens=_INTEGER, total_tokens=_INTEGER),
    "ChatLogProbs": _shape(
        content=_list(_shape(**_TOKEN, top_logprobs=_list(_shape(**_TOKEN)))), refusal={"type": "null"}
    ),
    "LogProbs": _shape(
        tokens=_list(_TEXT),
        # Nothing is known of the first token of a prompt that is echoed.
        token_logprobs=_list(_or_null(_NUMBER)),
        top_logprobs=_or_null(_list(_or_null(_OBJECT))),
        text_offset=_or_null(_list(_INTEGER)),
    ),
    "ChatCompletion": _shape("alignment", **_TEXT_ANSWER, choices=_list(_CHAT_CHOICE)),
    "Completion": _shape("alignment", **_TEXT_ANSWER, choices=_list(_CHOICE)),
    "EmbeddingList": _shape(
        **_ABOUT,
        object=_TEXT,
        data=_list(
            _shape(
                "embedding", "token_embeddings", "token_ids", "token_weights",
                object=_TEXT, index=_INTEGER, embedding=_VECTOR, token_embeddings=_list(_VECTOR),
                token_ids=_list(_INTEGER), token_weights={"type": "object", "additionalProperties": _NUMBER},
            )
        ),
    ),
    "Transcription": _shape("logprobs", text=_TEXT, usage=_HEARD_USAGE, logprobs=_list(_shape(**_TOKEN))),
    "VerboseTranscription": _shape(
        "segments", "words",
        task=_TEXT, language=_TEXT, duration=_SECONDS, text=_TEXT, usage=_HEARD_USAGE,
        segments=_list(_shape(id=_INTEGER, start=_SECONDS, end=_SECONDS, text=_TEXT)),
        words=_list(_shape(word=_TEXT, start=_SECONDS, end=_SECONDS)),
    ),
    "Ranking": _shape(
        **_ABOUT, id=_TEXT,
        results=_list(_shape("document", index=_INTEGER, relevance_score=_NUMBER, document=_shape(text=_TEXT))),
    ),
    "ScoreList": _shape(
        **_ABOUT, id=_TEXT, object=_TEXT, created=_CREATED,
        data=_list(_shape(object=_TEXT, index=_INTEGER, score=_NUMBER)),
    ),
    "TokenList": _shape("token_strs", count=_INTEGER, tokens=_list(_INTEGER), token_strs=_list(_TEXT)),
    "JoinedText": _shape(prompt=_TEXT),
}  # fmt: skip
# By path: the schemas of which an answer fits one.
ANSWERS: dict[str, tuple[str, ...]] = {
    models_list.PATH: ("ModelList",),
    f"{models_list.PATH}/*": ("Model",),
    chat.PATH: ("ChatCompletion",),
    completions.PATH: ("Completion",),
    embeddings.PATH: ("EmbeddingList",),
    audio.HEARD_PATH: ("Transcription", "VerboseTranscription"),
    audio.ENGLISH_PATH: ("Transcription", "VerboseTranscription"),
    rerank.RERANK_PATH: ("Ranking",),
    rerank.SCORE_PATH: ("ScoreList",),
    tokenize.CUT_PATH: ("TokenList",),
    tokenize.JOIN_PATH: ("JoinedText",),
}


def answer_of(path: str) -> dict[str, Any]:
    """Return the schema of a path's answer."""
    either = [reference(name) for name in ANSWERS[path]]
    return either[0] if len(either) == 1 else {"anyOf": either}
