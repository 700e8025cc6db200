"""Answers in channels: what a model says is the content, and what it thought before is `reasoning_content`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_server.openai_api.read_answers import ReadAnswers
from weft_server.preprocessing.channels import ChannelReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.preprocessing.channels import Said


class ChannelAnswers(ReadAnswers):
    """See ReadAnswers."""

    def _new_reader(self) -> ChannelReader:
        return ChannelReader()

    def _whole_choice(self, index: int, output: Any) -> dict[str, Any]:
        pieces = self._pieces(output.text)
        said, thought = ("".join(each.text for each in pieces if each.is_final is final) for final in (True, False))
        message = {"role": "assistant", "content": said, "refusal": None}
        return {"index": index, "message": message | ({"reasoning_content": thought} if thought else {})} | self._end(
            output
        )

    def _choices(self, index: int, pieces: Iterable[Said]) -> list[dict[str, Any]]:
        return [
            self._delta(index, each.text)
            if each.is_final
            else {"index": index, "finish_reason": None, "delta": {"reasoning_content": each.text}}
            for each in pieces
        ]
