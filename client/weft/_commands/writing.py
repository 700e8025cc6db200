"""`weft translate`, `caption`, `answer`, `transcribe` and `generate`: new text, as a whole or as a stream."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from weft import _show as show
from weft._commands.tools import functions_of
from weft._files.kind import TEXT, Kind
from weft._files.options import Files
from weft._options import CacheSalt, Language, PicturePath, RecordingPath, SourceText, TextRequest, read_argument
from weft._verbs.writing import (
    ANSWER,
    CAPTION,
    GENERATE,
    TRANSCRIBE,
    TRANSLATE,
    AnswerOptions,
    CaptionOptions,
    GenerateOptions,
    TranscribeOptions,
    TranslateOptions,
)
from weft.exceptions import InvalidRequest

LINES = {
    "translate": Kind(TRANSLATE, TEXT, TranslateOptions, "translating", show.texts_of),
    "caption": Kind(CAPTION, ("image",), CaptionOptions, "looking", show.texts_of),
    "answer": Kind(ANSWER, ("image",), AnswerOptions, "looking", show.texts_of, "question"),
    "transcribe": Kind(TRANSCRIBE, ("audio",), TranscribeOptions, "listening", show.texts_of),
    "generate": Kind(GENERATE, (*TEXT, "messages"), GenerateOptions, "generating", show.texts_of),
}


def translate(
    text: SourceText = None,
    *,
    source_language: Language = "",
    target_language: Language = "",
    split: Annotated[
        bool, typer.Option("--split", help="Translate each sentence by itself. For a text that is too long.")
    ] = False,
    cache_salt: CacheSalt = "",
    files: Files,
    request: TextRequest,
) -> None:
    """Translate a text.

    For example: weft translate "we are eating bread"
    """
    asked = {**request.options(), "source_language": source_language, "target_language": target_language}
    asked |= {"split_sentences": split, "cache_salt": cache_salt}
    if files.is_asked({"a text": text}):
        _write_lines(files, request, "translate", asked)
    elif text is not None:
        _write("translate", read_argument(text), asked, request)


def caption(picture: PicturePath = None, *, files: Files, request: TextRequest) -> None:
    """Describe a picture.

    For example: weft caption scene.png
    """
    asked = request.options()
    if files.is_asked({"a picture": picture}):
        _write_lines(files, request, "caption", asked)
    else:
        _write("caption", picture, asked, request)


def answer(
    picture: PicturePath = None,
    question: Annotated[
        str | None, typer.Argument(show_default=False, help="What to ask about it. A dash (-) reads it from stdin.")
    ] = None,
    *,
    files: Files,
    request: TextRequest,
) -> None:
    """Answer a question about a picture.

    For example: weft answer scene.png "what is red?"

    A line of --file has the path of a picture and a question, with a tab between them.
    """
    asked = request.options()
    is_whole = question is not None or files.file is not None
    if files.is_asked({"a picture and a question": picture if is_whole else None}):
        _write_lines(files, request, "answer", asked)
    elif question is not None:
        _write("answer", picture, asked, request, read_argument(question))


def transcribe(
    recording: RecordingPath = None,
    *,
    language: Annotated[
        str, typer.Option("--language", metavar="TAG", help="What is spoken, as a BCP-47 tag such as en.")
    ] = "",
    to_english: Annotated[bool | None, typer.Option(help="Say it in English. Default: as the model does.")] = None,
    timestamps: Annotated[
        bool | None, typer.Option(help="Ask the model when each part is said, and print its times too.")
    ] = None,
    files: Files,
    request: TextRequest,
) -> None:
    """Write down what is said in a recording.

    For example: weft transcribe spoken.wav
    """
    said = {"to_english": to_english, "timestamps": timestamps}
    # What is not said is as the model's checkpoint has it.
    asked = {
        **request.options(),
        "language": language,
        **{name: each for name, each in said.items() if each is not None},
    }
    if files.is_asked({"a recording": recording}):
        _write_lines(files, request, "transcribe", asked, **{"--timestamps": bool(timestamps)})
    elif timestamps and request.stream and not request.as_json:
        raise InvalidRequest("--timestamps are told at the end: leave --stream out, or give --json too")
    else:
        _write("transcribe", recording, asked, request, times=bool(timestamps))


def generate(
    prompt: Annotated[
        str | None, typer.Argument(show_default=False, help="The text to continue. A dash (-) reads it from stdin.")
    ] = None,
    *,
    chat: Annotated[
        str | None,
        typer.Option(
            "--chat", metavar="TEXT", help="Answer this message instead, as in a chat. A dash (-) reads it from stdin."
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="With --chat: what the model shall keep to.")
    ] = None,
    picture: Annotated[
        list[Path] | None,
        typer.Option(
            "--picture",
            metavar="FILE",
            show_default=False,
            help="With --chat: what the message is about, a PNG, JPEG or WebP file. Again for another.",
        ),
    ] = None,
    tools: Annotated[
        Path | None,
        typer.Option(
            "--tools",
            metavar="FILE",
            show_default=False,
            help="With --chat: a JSON file with what the model may call, as OpenAI's `tools`. --json has its calls.",
        ),
    ] = None,
    prompt_scores: Annotated[
        bool, typer.Option("--prompt-scores", help="Say how probable the prompt is. In --json of each token.")
    ] = False,
    cache_salt: CacheSalt = "",
    files: Files,
    request: TextRequest,
) -> None:
    """Continue a text, or answer a message.

    For example: weft generate "Return a list of"
    """
    asked: dict[str, Any] = {**request.options(), "return_prompt_scores": prompt_scores, "cache_salt": cache_salt}
    if system is not None and chat is None:
        raise InvalidRequest("--system needs --chat")
    if picture and chat is None:
        raise InvalidRequest("--picture needs --chat")
    if tools is not None:
        if chat is None:
            raise InvalidRequest("--tools needs --chat")
        asked["functions"] = functions_of(tools)
    if files.is_asked({"a text to continue": prompt, "--chat with a message": chat}):
        _write_lines(files, request, "generate", asked, **{"--prompt-scores": prompt_scores})
        return
    if chat is not None:
        told = [] if system is None else [{"role": "system", "content": system}]
        said = read_argument(chat)
        asked["messages"] = [*told, {"role": "user", "content": [*picture, said] if picture else said}]
    _write("generate", None if prompt is None else read_argument(prompt), asked, request, images=picture or ())


def _write_lines(files: Files, request: TextRequest, verb: str, asked: Mapping[str, Any], **more: object) -> None:
    """Ask for new text for each line of a file."""
    wants_json = {"--scores": request.scores, "--top-logprobs": request.top_logprobs, **more}
    never = {**request.for_one(), "--stream": request.stream}
    files.run(LINES[verb], request, asked, as_json=request.as_json, wants_json=wants_json, never=never)


def _write(
    verb: str,
    source: str | Path | None,
    asked: Mapping[str, Any],
    request: TextRequest,
    *more: str,
    times: bool = False,
    images: Sequence[Path] = (),
) -> None:
    """Ask for new text, and print and draw what came; with `times`, a line for each segment of a recording.

    `more` are arguments behind the source. `images` are the pictures of a chat.
    """
    with request.client() as client:
        if request.stream:
            stream = getattr(client, f"stream_{verb}")(source, *more, **asked)
            heard = verb == "transcribe"
            answer = show.streamed(stream, scores=request.scores, as_json=request.as_json, heard=heard)
        else:
            with show.patience(LINES[verb].title):
                answer = getattr(client, verb)(source, *more, **asked)
            if times and not request.as_json:
                show.timed(answer)
            else:
                show.written(answer, scores=request.scores, as_json=request.as_json)
    show.more(answer, verbose=request.verbose, tokens=request.tells_tokens and not request.as_json)
    path = source if isinstance(source, Path) else None
    drawn: dict[str, Any] = {"recording": path} if verb == "transcribe" else {"image": path, "images": images}
    request.draw(answer.alignment, title=answer.text, **drawn)
