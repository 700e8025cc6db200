"""Answers in which a model may call functions by itself: its text, and the calls that are read out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft_proto.v1 import common_pb2
from weft_server.openai_api.read_answers import ReadAnswers
from weft_server.openai_api.tools import shown_call
from weft_server.preprocessing.written_calls import CallArguments, CallName, call_id, calls_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft_server.openai_api.api_request import ApiRequest
    from weft_server.preprocessing.written_calls import CallReader, Piece


class AutoToolAnswers(ReadAnswers):
    """Those of a request whose model was told of functions. Whole and streamed they are read by the same readers."""

    def __init__(self, http: ApiRequest, asked: Any, reader: Callable[[], CallReader], *, scored: bool) -> None:
        """`reader` makes what reads one answer."""
        super().__init__(http, asked, scored=scored)
        self._reader = reader
        # Of a stream, by the index of a choice: how many calls were told.
        self._num_calls: dict[int, int] = {}

    def _new_reader(self) -> CallReader:
        return self._reader()

    def _whole_choice(self, index: int, output: Any) -> dict[str, Any]:
        pieces = self._pieces(output.text)
        calls = calls_in(pieces)
        text = "".join(each for each in pieces if isinstance(each, str))
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if calls:
            message["tool_calls"] = [shown_call(self._id_of(index, number), *call) for number, call in enumerate(calls)]
        return {"index": index, "message": message} | self._ended(output, len(calls))

    def _closing(self, index: int, output: Any) -> dict[str, Any]:
        return {"index": index, "delta": {}} | self._ended(output, self._num_calls.get(index, 0))

    def _ended(self, output: Any, num_calls: int) -> dict[str, Any]:
        end = self._end(output)
        is_call = num_calls and end["finish_reason"] == "stop" and not self._is_cut_by_a_stop_string(output)
        return end | ({"finish_reason": "tool_calls"} if is_call else {})

    def _is_cut_by_a_stop_string(self, output: Any) -> bool:
        """Whether the last call ends within its arguments: a program must not take it for one."""
        if output.finish_reason != common_pb2.FINISH_REASON_STOP_STRING:
            return False
        try:
            msgspec.json.decode(calls_in(self._pieces(output.text))[-1][1] or "{}")
        except msgspec.DecodeError:
            return True
        return False

    def _choices(self, index: int, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        """The choices of chunks with what was read: of a call its id and name, then its arguments in pieces."""
        choices = []
        for each in pieces:
            number = self._num_calls.get(index, 0)
            if isinstance(each, CallName):
                self._num_calls[index] = number + 1
                call = shown_call(self._id_of(index, number), each.name, "")
            elif isinstance(each, CallArguments):
                number, call = number - 1, {"function": {"arguments": each.text}}
            else:
                choices.append(self._delta(index, each))
                continue
            delta = {"tool_calls": [{"index": number, **call}]}
            choices.append({"index": index, "finish_reason": None, "delta": delta})
        return choices

    def _id_of(self, index: int, number: int) -> str:
        return call_id(self._http.request_id, index, number)
