"""Answers of a chat whose texts are read as they come: for calls, or for channels."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from weft_server.openai_api.text_answers import ChatAnswers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable


class ReadAnswers(ChatAnswers):
    """Whole and streamed they are read by the same readers."""

    @abstractmethod
    def _new_reader(self) -> Any:
        """What reads one answer: by `push` what comes of it, and by `finish` what it held back."""

    @abstractmethod
    def _choices(self, index: int, pieces: Iterable[Any]) -> list[dict[str, Any]]:
        """The choices of chunks with what was read."""

    def _pieces(self, text: str) -> list[Any]:
        reader = self._new_reader()
        return [*reader.push(text), *reader.finish()]

    def _said(self, index: int, output: Any) -> list[dict[str, Any]]:
        return self._choices(index, self._pieces(output.text))

    async def _events(self, number: int, responses: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
        reader, has_text = self._new_reader(), False
        async with aclosing(responses):
            async for response in responses:
                is_delta = response.WhichOneof("event") == "delta"
                if is_delta and not has_text:
                    yield self._chunk(self._opening(number))
                has_text |= is_delta
                if has_text:
                    pieces = reader.push(response.delta.text) if is_delta else reader.finish()
                    for each in self._choices(number, pieces):
                        yield self._chunk([each])
                if not is_delta:
                    async with aclosing(self._ending(number, response.final, has_text=has_text)) as ending:
                        async for chunk in ending:
                            yield chunk
