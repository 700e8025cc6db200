"""Completions behind their prompts, with the scores of both."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2, generation_pb2, score_pb2
from weft_server.openai_api.log_probs import completion_log_probs, first_text, offsets_of
from weft_server.openai_api.text_answers import COST_OF_SCORES, CompletionAnswers, first_index

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from weft_proto.v1 import tokenization_pb2
    from weft_server.openai_api.api_request import ApiRequest, Spelling


@dataclass
class Echoed:
    """A prompt as the model reads it, and the response to it.

    Attributes:
        pieces: the prompt's tokens to show.
        model: the version that cut it.
        has_seams: whether what an answer adds behind it is known only when its tokens are.
        cut: where the tokens stand in the text, if a text was sent.
        scores: of all tokens but the first, if they were asked for.
    """

    text: str
    ids: Sequence[int]
    pieces: Sequence[str]
    model: common_pb2.ResolvedModel
    spelling: Spelling
    has_seams: bool
    cut: tokenization_pb2.TokenizeResponse | None = None
    scores: score_pb2.ScoreResponse = field(default_factory=score_pb2.ScoreResponse)
    response: generation_pb2.GenerateResponse = field(default_factory=generation_pb2.GenerateResponse)

    @cached_property
    def is_blank(self) -> bool:
        """Whether an answer begins the text: no token before it is text."""
        return all(self.spelling(id_, True) is None for id_ in self.ids)

    @cached_property
    def cost(self) -> int:
        """About how many bytes take as long to write."""
        return len(self.text) + COST_OF_SCORES * self.scores.ByteSize()

    @cached_property
    def log_probs(self) -> dict[str, Any]:
        """The prompt's own, whose first token has none: nothing stands before it."""
        log_probs = [0.0, *self.scores.token_log_probs]
        output = common_pb2.Output(text=self.text, token_ids=self.ids, tokens=self.pieces, token_log_probs=log_probs)
        if self.scores.top_tokens:
            output.top_tokens.extend([common_pb2.TopTokens(), *self.scores.top_tokens])
        own = completion_log_probs(output, self.spelling)
        own["token_logprobs"][0] = None
        own["top_logprobs"] = [None, *(own["top_logprobs"] or [])[1:]]
        if self.cut:
            own["text_offset"] = prompt_offsets(self.text, self.cut, self.spelling)
        return own

    def log_probs_with(self, output: Any) -> dict[str, Any]:
        """Return those of the prompt and of an answer behind it."""
        own = self.log_probs
        behind = None if self.is_blank else self.text_with(output)[len(self.text) :]
        more = completion_log_probs(output, self.spelling, behind)
        tops = own["top_logprobs"] + (more["top_logprobs"] or [])
        return {
            "tokens": own["tokens"] + more["tokens"],
            "token_logprobs": own["token_logprobs"] + more["token_logprobs"],
            "top_logprobs": tops if any(tops) else None,
            # Each has its own U+FFFD where a character is cut between the two.
            "text_offset": own["text_offset"] + [len(self.text) + each for each in more["text_offset"]],
        }

    def text_with(self, output: Any) -> str:
        """Return the prompt and an answer's text, which alone begins without the space before its first word."""
        texts = (id_ for id_ in output.token_ids if self.spelling(id_, True) is not None)
        answer: str = output.text
        word = next(texts, None)
        if not answer or self.is_blank or word is None:
            return self.text + answer
        alone, behind = (self.spelling(word, begins) or b"" for begins in (True, False))
        if behind.endswith(alone):
            return self.text + behind.removesuffix(alone).decode() + answer
        # Alone it shows its mark, such as ## of WordPiece.
        return self.text + behind.decode() + answer.removeprefix(alone.decode())


class EchoAnswers(CompletionAnswers):
    """Those of a request that asks for `echo`. In a stream the first chunk of each choice is its prompt."""

    def __init__(self, http: ApiRequest, asked: Any, *, scored: bool) -> None:
        super().__init__(http, asked, scored=scored)
        # By the index of a choice.
        self._prompts: dict[int, Echoed] = {}

    async def whole(self, responses: Sequence[Echoed]) -> bytes:
        """Return the answer, as TextAnswers does."""
        for number, each in enumerate(responses):
            self._note(number, each, each.response)
        return await super().whole([each.response for each in responses])

    async def _events(self, number: int, responses: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
        """Yield the events of one prompt, which is the first that comes."""
        async with aclosing(responses):
            prompt = await anext(responses)
            async with aclosing(super()._events(number, self._noted(number, prompt, responses))) as events:
                async for each in events:
                    yield each

    async def _noted(self, number: int, prompt: Echoed, responses: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
        """Yield responses. Where the seam behind the prompt is told by the last of them, only that one."""
        # The only answer, if text comes in pieces.
        self._prompts.setdefault(number, prompt)
        async for response in responses:
            if response.WhichOneof("event") == "final":
                self._note(number, prompt, response.final)
            elif prompt.has_seams:
                continue
            yield response

    def _note(self, number: int, prompt: Echoed, response: Any) -> None:
        first = first_index(number, response)
        self._prompts |= dict.fromkeys(range(first, first + 1 + len(response.completion.others)), prompt)

    def _size(self, responses: Sequence[Any]) -> int:
        return super()._size(responses) + sum(each.cost for each in self._prompts.values())

    def _whole_choice(self, index: int, output: Any) -> dict[str, Any]:
        return self._end(index, output) | {"text": self._prompts[index].text_with(output)}

    def _opening(self, index: int) -> list[dict[str, Any]]:
        return [self._delta(index, self._prompts[index].text)]

    def _said(self, index: int, output: Any) -> list[dict[str, Any]]:
        prompt = self._prompts[index]
        text = prompt.text_with(output).removeprefix(prompt.text)
        return [self._delta(index, text)] if text else []

    def _log_probs(self, index: int, output: Any) -> dict[str, Any]:
        return self._prompts[index].log_probs_with(output)


def prompt_offsets(text: str, cut: tokenization_pb2.TokenizeResponse, spelling: Spelling) -> list[int]:
    """Return where each token of a text begins in it, in characters.

    A special token that the text spells begins where its name does. What is put around the text stands for none of it.
    """
    first = first_text(cut.token_ids, spelling)
    own = [spelling(id_, index <= first) for index, id_ in enumerate(cut.token_ids)]
    shown = [
        b"" if added else piece.encode() if data is None else data
        for data, piece, added in zip(own, cut.tokens, cut.added, strict=True)
    ]
    if b"".join(shown) == text.encode():
        return offsets_of(shown, text)
    # A normaliser has changed the text. The tokenizer knows the places of whole words, and of bytes it does not.
    return _placed(text, cut, own)


def _placed(text: str, cut: tokenization_pb2.TokenizeResponse, own: list[bytes | None]) -> list[int]:
    """Return the tokenizer's own places, with the white space before them that the tokens have themselves."""
    offsets: list[int] = []
    begun = reached = 0
    for data, start, end, added in zip(own, cut.starts, cut.ends, cut.added, strict=True):
        if added:
            offsets.append(len(text) if reached else 0)
            continue
        between = text[reached:start]
        spaces = len(between) - len(between.rstrip())
        begun = max(begun, start - min(_num_leading_spaces(data, is_word=start < end), spaces))
        reached = max(reached, end)
        offsets.append(begun)
    return offsets


def _num_leading_spaces(data: bytes | None, *, is_word: bool) -> int:
    """Of what a token adds. One of white space alone stands at its own place, unless it has none."""
    shown = (data or b"").decode(errors="replace")
    stripped = shown.lstrip()
    return 0 if is_word and not stripped else len(shown) - len(stripped)
