"""The log-probabilities of an answer's tokens, in the two shapes that OpenAI has for them."""

from __future__ import annotations

from typing import Any

# JSON has no infinity. OpenAI says this of a token that is very improbable.
_LEAST = -9999.0


def chat_log_probs(output: Any) -> dict[str, Any]:
    """Return `logprobs` of a chat's choice: an entry for each token of a Completion or an Output."""
    tops = output.top_tokens or [None] * len(output.tokens)
    return {
        "content": [
            _entry(token, log_prob) | {"top_logprobs": [_entry(*each) for each in _of(top)]}
            for token, log_prob, top in zip(output.tokens, output.token_log_probs, tops, strict=True)
        ],
        "refusal": None,
    }


def completion_log_probs(output: Any) -> dict[str, Any]:
    """Return `logprobs` of a completion's choice: parallel lists. `text_offset` is null: see docs/openai.md."""
    return {
        "tokens": list(output.tokens),
        "token_logprobs": [_finite(each) for each in output.token_log_probs],
        "top_logprobs": [{token: _finite(each) for token, each in _of(top)} for top in output.top_tokens] or None,
        "text_offset": None,
    }


def token_log_probs(output: Any) -> list[dict[str, Any]]:
    """Return `logprobs` of a transcription: each token's own."""
    return [_entry(*each) for each in zip(output.tokens, output.token_log_probs, strict=True)]


def _of(top: Any) -> list[tuple[str, float]]:
    return list(zip(top.tokens, top.log_probs, strict=True)) if top else []


def _entry(token: str, log_prob: float) -> dict[str, Any]:
    # The bytes of a token are not told: its text is that piece which is shown.
    return {"token": token, "logprob": _finite(log_prob), "bytes": None}


def _finite(log_prob: float) -> float:
    return max(log_prob, _LEAST)
