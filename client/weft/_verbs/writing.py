"""The verbs whose answer is text: `translate`, `caption`, `answer`, `transcribe` and `generate`."""

from collections.abc import Iterable
from typing import Unpack

from weft._answers import completion
from weft._chat import messages_of, tell_functions
from weft._completions import Answer, Caption, Generation, Transcription, Translation
from weft._requests import audio_of, fill_options, fill_text, image_of, two_of
from weft._types import Function, Messages, PictureFile, Recording, Text
from weft._verbs.options import WritingOptions
from weft._verbs.verb import WritingVerb
from weft.exceptions import InvalidRequest
from weft_proto.v1 import answer_pb2, caption_pb2, generation_pb2, transcription_pb2, translation_pb2


class CaptionOptions(WritingOptions, total=False):
    """What a caption takes: all that a request for text does."""


class AnswerOptions(WritingOptions, total=False):
    """What a question takes: all that a request for text does."""


class TranscribeOptions(WritingOptions, total=False):
    """What a transcription takes besides: the BCP-47 tag of what is spoken, and whether to say it in English.

    Of several languages that it knows, the model tells which is spoken unless `language` names it. `timestamps` asks it
    to tell when each part is said. What is not given is as the model's checkpoint has it: `Model.default_language`,
    `Model.default_to_english` and `Model.default_timestamps`.
    """

    language: str
    to_english: bool
    timestamps: bool


class GenerateOptions(WritingOptions, total=False):
    """What a continuation takes besides.

    `return_prompt_scores` asks for the log-probability of the prompt's tokens, at the cost of one more pass over it.
    `cache_salt` keeps the server's prefix cache to requests that have the same one. `functions` are those that the
    model of `messages` may call: `Completion.calls` are the calls that it wrote.
    """

    return_prompt_scores: bool
    cache_salt: str
    functions: Iterable[Function]


class TranslateOptions(WritingOptions, total=False):
    """What a translation takes besides: BCP-47 tags, by default the model's only source and target language.

    `split_sentences` is for a text that is longer than the model takes: each sentence is translated by itself, and the
    translations are joined. It goes with neither token ids nor `explain`. `cache_salt` keeps the server's cache to
    requests that have the same one.
    """

    source_language: str
    target_language: str
    split_sentences: bool
    cache_salt: str


def translate_request(text: Text, **options: Unpack[TranslateOptions]) -> translation_pb2.TranslateRequest:
    """Ask for a translation."""
    message = translation_pb2.TranslateRequest()
    fill_text(message, text)
    fill_options(message, {**options})
    return message


def caption_request(image: PictureFile, **options: Unpack[CaptionOptions]) -> caption_pb2.CaptionRequest:
    """Ask for a caption."""
    message = caption_pb2.CaptionRequest(image=image_of(image))
    fill_options(message, {**options})
    return message


def answer_request(image: PictureFile, question: Text, **options: Unpack[AnswerOptions]) -> answer_pb2.AnswerRequest:
    """Ask a question about a picture."""
    message = answer_pb2.AnswerRequest(image=image_of(image))
    fill_text(message, question)
    fill_options(message, {**options})
    return message


def answer_pair_request(asked: tuple[PictureFile, Text], **options: Unpack[AnswerOptions]) -> answer_pb2.AnswerRequest:
    """Do as `answer_request` with a picture and a question about it in one."""
    image, question = two_of(asked, "questions", "a picture and a question")
    return answer_request(image, question, **options)


def transcribe_request(audio: Recording, **options: Unpack[TranscribeOptions]) -> transcription_pb2.TranscribeRequest:
    """Ask what is said in a recording."""
    message = transcription_pb2.TranscribeRequest(audio=audio_of(audio))
    fill_options(message, {**options})
    return message


def generate_request(
    prompt: Text | None, messages: Messages | None = None, **options: Unpack[GenerateOptions]
) -> generation_pb2.GenerateRequest:
    """Ask for the continuation of a prompt or of a chat."""
    message = generation_pb2.GenerateRequest()
    if (prompt is None) == (messages is None):
        raise InvalidRequest("give either a prompt or messages to go on with", reason="WRONG_INPUT_KIND")
    functions = options.pop("functions", None)
    if messages is not None:
        message.messages.CopyFrom(messages_of(messages))
        tell_functions(message.messages, functions or ())
    elif prompt is not None:
        fill_text(message, prompt)
        if functions is not None:
            raise InvalidRequest("functions are for messages, not for a prompt", reason="WRONG_INPUT_KIND")
    fill_options(message, {**options})
    return message


TRANSLATE = WritingVerb("Translate", translate_request, completion(Translation))
CAPTION = WritingVerb("Caption", caption_request, completion(Caption))
ANSWER = WritingVerb("Answer", answer_request, completion(Answer))
# Two arguments in one.
ANSWER_PAIR = ANSWER.asked_by(answer_pair_request)
TRANSCRIBE = WritingVerb("Transcribe", transcribe_request, completion(Transcription))
GENERATE = WritingVerb("Generate", generate_request, completion(Generation))
