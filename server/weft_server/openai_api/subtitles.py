"""SubRip and WebVTT: what was said when, as players read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def srt(segments: Iterable[Any]) -> str:
    """Return segments, which have `start_s`, `end_s` and `text`, as SubRip."""
    return "".join(
        f"{number}\n{_time(each.start_s, ',')} --> {_time(each.end_s, ',')}\n{_line(each.text)}\n\n"
        for number, each in enumerate(segments, 1)
    )


def vtt(segments: Iterable[Any]) -> str:
    """Return segments, which have `start_s`, `end_s` and `text`, as WebVTT."""
    return "WEBVTT\n\n" + "".join(
        f"{_time(each.start_s, '.')} --> {_time(each.end_s, '.')}\n{_line(each.text)}\n\n" for each in segments
    )


def _time(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{milliseconds:03}"


def _line(text: str) -> str:
    # An arrow would be read as a time, and an empty line ends a cue.
    return " ".join(text.split()).replace("-->", "->")
