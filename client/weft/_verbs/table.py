"""The verbs that ask a model something: one table, for `Client`, `AsyncClient` and `weft bench`."""

from typing import Any

from weft._verbs.classify import CLASSIFY
from weft._verbs.embed import EMBED
from weft._verbs.extract import EXTRACT
from weft._verbs.fill_mask import FILL_MASK
from weft._verbs.score import SCORE
from weft._verbs.tag import TAG
from weft._verbs.tokenization import DETOKENIZE, TOKENIZE
from weft._verbs.verb import Verb, WritingVerb
from weft._verbs.writing import ANSWER, CAPTION, GENERATE, TRANSCRIBE, TRANSLATE
from weft_proto.v1.methods import METHODS, Method, streaming

VERBS: tuple[Verb[..., Any], ...] = (
    *(TRANSLATE, CAPTION, ANSWER, TRANSCRIBE, GENERATE),
    *(CLASSIFY, TAG, EXTRACT, FILL_MASK, EMBED, SCORE, TOKENIZE, DETOKENIZE),
)
_WRITING = tuple(verb for verb in VERBS if isinstance(verb, WritingVerb))
STREAM_PATHS = tuple(verb.stream_path for verb in _WRITING)


def methods_on(channel: Any) -> dict[str, Any]:
    """Return the methods of all verbs, by path, to be called on a channel: a blocking one, or asyncio's."""
    methods = [METHODS[verb.name] for verb in VERBS] + [streaming(verb.name) for verb in _WRITING]
    return {method.path: _on(channel, method) for method in methods}


def _on(channel: Any, method: Method) -> Any:
    """Return what calls a method, as a generated stub has it."""
    make = channel.unary_stream if method.streams else channel.unary_unary
    return make(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
        _registered_method=True,
    )
