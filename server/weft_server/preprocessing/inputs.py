"""Turns what a request carries into what a graph takes: text or ids to Ids, a picture to Pixels, a recording to Sound.

Runs in worker threads: off the event loop, off the engine's lanes.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_proto.bundle_rules import MAX_CHARS_PER_TOKEN
from weft_proto.languages import Frame
from weft_proto.prompts import max_chars
from weft_proto.sound import window_samples
from weft_proto.tasks import TASKS
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.audio_file import load_samples
from weft_server.preprocessing.images import PictureBounds, load_picture
from weft_server.preprocessing.log_mel import spans_of
from weft_server.preprocessing.picture_views import PictureViews
from weft_server.preprocessing.pictured_prompt import PromptPicture, pictures_of
from weft_server.preprocessing.pictured_text import asked_of, joined
from weft_server.preprocessing.prompts import Prompt, Prompts
from weft_server.preprocessing.sentences import divided, sentences
from weft_server.preprocessing.sides import filled
from weft_server.preprocessing.tokenizer import known
from weft_server.preprocessing.waveform import hearing_of
from weft_server.source import Ids, Pixels

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_proto.v1 import bundle_pb2, common_pb2, generation_pb2
    from weft_server.preprocessing.chat_template import Chat
    from weft_server.preprocessing.pictured_prompt import PicturedPrompt
    from weft_server.preprocessing.tokenizer import Joined, Tokenizer, TokenSpan
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.source import Source

# Of a text that is split into sentences.
MAX_SENTENCES = 256
MAX_SPLIT_CHARS = 131_072
# So many samples may be lost on the way to another rate.
_LOST_SAMPLES = 2
_NO_FRAME = Frame()


class InputPart(NamedTuple):
    """A sentence of a text or a window of a recording, and what stands between it and the one before."""

    gap: str
    source: Source


class InputReader:
    """Reads the inputs of one model."""

    def __init__(
        self,
        manifest: bundle_pb2.BundleManifest,
        tokenizer: Tokenizer | None,
        chat: Chat | None = None,
        *,
        max_image_bytes: int,
        max_image_pixels: int,
        max_audio_bytes: int,
        max_audio_s: int,
    ) -> None:
        self._text, self._image, self._audio = manifest.text, manifest.image, manifest.audio
        self._vocab_size = self._text.source_vocab_size
        self.prompts = Prompts(self._text)
        self._text_tokenizer, self.chat = tokenizer, chat
        self._picture_bounds = PictureBounds(max_image_bytes, max_image_pixels)
        self.views = PictureViews(manifest.image, self._picture_bounds)
        self._max_audio_bytes, self._max_audio_s = max_audio_bytes, max_audio_s
        self._hearing = hearing_of(manifest.audio) if manifest.HasField("audio") else None
        takes_prompt = TASKS[manifest.task].takes_prompt
        # A prompt leaves room for at least one new token.
        self.max_tokens = self._text.max_total_tokens - 1 if takes_prompt else self._text.max_source_tokens
        self._max_chars = max_chars(self._text, self.max_tokens)
        self._grid = (self._image.grid_rows, self._image.grid_columns)

    @property
    def _tokenizer(self) -> Tokenizer:
        assert self._text_tokenizer is not None, "this model takes no text. This is a bug."
        return self._text_tokenizer

    def read_text(self, text: str, field: str, frame: Frame = _NO_FRAME, prompt: Prompt | None = None) -> Ids:
        """Return the token ids of a text behind a prompt, by default the model's own, those of `frame` around them.

        Raises InvalidRequest when it is not one that the model takes.
        """
        prompt = prompt or self.prompts.default
        self._check_text(text, field)
        prompted = prompt.text + text
        if prompted != text:
            # What the prompt is made of says nothing about the text.
            self._check_part(known(self._tokenizer.encode_framed, text, field), field)
        ids = known(self._tokenizer.encode, prompted, field)
        if prompt.side is not None:
            ids = self._tokenizer.cut(ids, prompt.side.max_tokens)
        added = self._tokenizer.added(ids)
        self._check_tokens(added, field, len(frame.before) + len(frame.after))
        if self.takes_pairs and prompted == text:
            self._check_separator([each for each, is_added in zip(ids, added, strict=True) if not is_added], field)
        whole = [*frame.before, *ids, *frame.after]
        return Ids(np.array(whole, np.int64)) if prompt.side is None else filled(whole, prompt.side, field)

    def read_pair(self, text: str, other: str, prompt: Prompt | None = None) -> Ids:
        """Return the token ids of two texts, as the tokenizer joins them.

        A prompt, by default the model's own, stands before the first.

        Raises InvalidRequest when one of them is not one that the model takes, or when they are too long together.
        """
        for field, each in (("text", text), ("text_pair", other)):
            self._check_text(each, field)
            self._check_part(known(self._tokenizer.encode_framed, each, field), field)
        prompted = (prompt or self.prompts.default).text + text
        ids = known(self._tokenizer.encode_pair, (prompted, other), "text_pair")
        if len(ids) > self.max_tokens:
            why = f"and text are {len(ids)} tokens together; the model takes {self.max_tokens} tokens"
            raise InvalidRequest("text_pair", why, "INPUT_TOO_LONG")
        return Ids(np.array(ids, np.int64))

    def read_question(self, question: str, context: str) -> Joined:
        """Return a question and its context, as the tokenizer joins them. The context may be too long for the model.

        Raises InvalidRequest when one of them is not one that the model takes.
        """
        self._check_text(question, "question")
        self._prefix_of(context, "context")
        most = max(MAX_SPLIT_CHARS, self.max_tokens * MAX_CHARS_PER_TOKEN)
        if len(context) > most:
            why = f"is {len(context)} characters long; at most {most} are taken"
            raise InvalidRequest("context", why, "INPUT_TOO_LONG")
        joined = known(self._tokenizer.join, (question, context), "context")
        self._check_part(joined.first_ids, "question")
        self._check_part(joined.ids, "context")
        return joined

    def _check_part(self, ids: list[int], field: str) -> None:
        """`ids` are those of a text which another one, or a prompt, is joined to."""
        if not ids:
            raise InvalidRequest(field, "holds nothing that the model's tokenizer keeps", "EMPTY_INPUT")
        self._check_separator(ids, field)

    @property
    def takes_pairs(self) -> bool:
        """Whether `read_pair` can join texts."""
        return self._text.HasField("separator_id")

    def _check_separator(self, ids: list[int], field: str) -> None:
        """Refuse a text that spells what divides two texts: the model would take what follows for the second."""
        if self.takes_pairs and self._text.separator_id in ids:
            raise InvalidRequest(field, "spells the token that stands between two texts")

    def read_sentences(self, text: str, field: str, frame: Frame, wanted: Wanted) -> list[InputPart]:
        """Return the sentences of a text as sources, a prefix of the model and `frame` around each. See `sentences`.

        A text of one sentence is read as `read_text` reads it. A sentence that is too long is cut where it does least
        harm. One of which the tokenizer keeps nothing is left out.

        Raises:
            InvalidRequest: it is not one that the model takes, or has too many sentences.
            DeadlineExpired: the text is not wanted any more.
        """
        if len(text) > MAX_SPLIT_CHARS:
            why = f"is {len(text)} characters long; of a text that is split at most {MAX_SPLIT_CHARS} are taken"
            raise InvalidRequest(field, why, "INPUT_TOO_LONG")
        encode, most_chars = self._tokenizer.encode, self.max_tokens * MAX_CHARS_PER_TOKEN
        prefix = self._prefix_of(text, field)

        def ids_of(part: str) -> list[int]:
            wanted.check()
            return known(encode, prefix + part, field)

        def fits(part: str) -> bool:
            if len(prefix) + len(part) > most_chars:
                return False
            return len(ids_of(part)) + len(frame.before) + len(frame.after) <= self.max_tokens

        cut = (
            part for sentence in sentences(text.removeprefix(prefix)) for part in divided(sentence, fits, most_chars)
        )
        parts = list(islice(cut, MAX_SENTENCES + 1))
        if len(parts) == 1:
            return [InputPart("", self.read_text(text, field, frame))]
        self._check_parts([part.text for part in parts], fits, field)
        found: list[InputPart] = []
        for part in parts:
            ids = ids_of(part.text)
            if not all(self._tokenizer.added(ids)):
                source = Ids(np.array([*frame.before, *ids, *frame.after], np.int64))
                found.append(InputPart(part.gap if found else "", source))
        if not found:
            raise InvalidRequest(field, "holds nothing that the model's tokenizer keeps", "EMPTY_INPUT")
        return found

    @property
    def takes_messages(self) -> bool:
        """Whether `read_messages` can make a prompt of messages."""
        return self.chat is not None

    @property
    def call_format(self) -> str:
        """How answers write a call of a function: see Model.call_format."""
        return self.chat.call_format if self.chat else ""

    @property
    def takes_pictures(self) -> bool:
        """Whether messages may hold pictures."""
        return self.chat is not None and self.chat.takes_pictures

    def is_framed(self, prompt: str) -> bool:
        """Whether a template has written the special tokens of a prompt itself, which a post-processor would add.

        As in transformers: a template alone always has, and one beside a processor of pictures where it begins so.
        """
        bos = self._text.chat.bos_token
        return not self._text.HasField("image_id") or bool(bos and prompt.startswith(bos))

    def read_messages(self, messages: generation_pb2.Messages, field: str, wanted: Wanted) -> Ids:
        """Return the token ids of the prompt that messages make. Raises as `prompt_of` does, and for one too long."""
        text = self.prompt_of(messages, field, wanted)
        encode = self._tokenizer.encode_framed if self.is_framed(text) else self._tokenizer.encode
        image_id, sees = self._text.image_id, self._text.HasField("image_id")
        pictures: list[PromptPicture] = []
        if sees:
            token = self._tokenizer.vocabulary.tokens[image_id]
            pictures = self.views.cut(pictures_of(messages, field, token), wanted)
            # Whatever is said around them.
            self._check_prompt(self.views.num_places(pictures), field)
            text = self.views.framed(text, pictures, token)
        ids = known(encode, text, field)
        if not ids:
            raise InvalidRequest(field, "make an empty prompt", "EMPTY_INPUT")
        num_words = len(ids) - ids.count(image_id) if pictures else len(ids)
        self._check_prompt(num_words + self.views.num_places(pictures), field)
        prompt = self.views.prompt_of(ids, pictures, image_id if sees else -1)
        return prompt if pictures else Ids(prompt.array)

    def _check_prompt(self, length: int, field: str) -> None:
        if length > self.max_tokens:
            raise self._prompt_too_long(field, f"{length} tokens")

    def read_pictured(self, image: common_pb2.Image, question: str, field: str, wanted: Wanted) -> PicturedPrompt:
        """Return a prompt that begins with a picture, behind which a question stands."""
        asked = self.read_text(question, field).array.tolist()
        pictures = self.views.cut([PromptPicture(image, "image")], wanted)
        token = self._tokenizer.vocabulary.tokens[self._text.image_id]
        text = self.views.framed(token, pictures, token)
        shown = [self._text.image_id] if text == token else known(self._tokenizer.encode_framed, text, field)
        return self.views.prompt_of([*shown, *asked], pictures, self._text.image_id)

    def prompt_of(self, messages: generation_pb2.Messages, field: str, wanted: Wanted) -> str:
        """Return the prompt that messages make.

        Raises:
            InvalidRequest: they are not messages that the model takes.
            DeadlineExpired: the prompt is not wanted any more.
        """
        assert self.chat is not None, "this model takes no messages. This is a bug."
        most = self.max_tokens * MAX_CHARS_PER_TOKEN
        text = self.chat.prompt(messages, field, most, wanted)
        if len(text) > most:
            raise self._prompt_too_long(field, f"{len(text)} characters")
        return text

    def split_text(self, text: str, field: str) -> list[TokenSpan]:
        """Return the tokens of a text, each with its place in it. Raises as `read_text` does."""
        self._check_text(text, field)
        pieces = known(self._tokenizer.split, text, field)
        self._check_tokens([piece.added for piece in pieces], field)
        return pieces

    def read_ids(self, token_ids: common_pb2.TokenIds, field: str) -> Ids:
        """Return token ids as the caller gave them, nothing around them.

        Raises InvalidRequest when one is out of range.
        """
        count = len(token_ids.ids)
        if count == 0:
            raise InvalidRequest(f"{field}.ids", "must not be empty", "EMPTY_INPUT")
        if count > self.max_tokens:
            raise self._too_long(f"{field}.ids", f"{count} tokens")
        # np.array would first make a list of a message's numbers, and then ask each for its type.
        ids = np.fromiter(token_ids.ids, np.int64, count)
        if ids.max() >= self._vocab_size:
            wrong = np.flatnonzero(ids >= self._vocab_size)
            raise InvalidRequest(
                f"{field}.ids[{wrong[0]}]",
                f"must be below the vocabulary size, {self._vocab_size}, not {ids[wrong[0]]}",
                "TOKEN_OUT_OF_RANGE",
            )
        return Ids(ids)

    def read_image(self, image: common_pb2.Image, wanted: Wanted) -> Pixels:
        """Pixel values of a picture.

        Raises:
            InvalidRequest: it is no picture, or too large.
            DeadlineExpired: it is not wanted any more.
        """
        pixels, region = load_picture(image.data, self._image, *self._picture_bounds, wanted)
        return Pixels(pixels, self._grid, self._image.num_class_tokens, region=region)

    def read_asked(
        self, image: common_pb2.Image, question: str | common_pb2.TokenIds, field: str, wanted: Wanted
    ) -> Pixels:
        """Return a picture and the question about it, which `field` holds. Raises as for each of the two."""
        asked = asked_of(self._text, question, field, self.read_text, self.read_ids)
        wanted.check()
        return joined(self._text, self.read_image(image, wanted), asked, field)

    def read_windows(
        self, audio: common_pb2.Audio, wanted: Wanted, check_length: Callable[[float], None] = lambda _: None
    ) -> list[InputPart]:
        """Return the windows of a recording. A long one is cut where it is quiet.

        `check_length` may refuse so many seconds before they are read.

        Raises:
            InvalidRequest: it is no recording, or too long.
            DeadlineExpired: it is not wanted any more.
        """
        assert self._hearing is not None, "this model takes no recording. This is a bug."
        rate = self._audio.sample_rate
        samples = load_samples(audio.data, rate, self._max_audio_bytes, self._max_audio_s, wanted, check_length)
        parts = []
        for span in spans_of(samples, self._audio):
            wanted.check()
            parts.append(InputPart("", self._hearing.source(samples, span)))
        return parts

    def read_window(self, audio: common_pb2.Audio, field: str, wanted: Wanted) -> Source:
        """Return the only window of a recording.

        Raises:
            InvalidRequest: there are several, or as `read_windows` does.
            DeadlineExpired: it is not wanted any more.
        """
        rate, longest = self._audio.sample_rate, window_samples(self._audio)
        why = f"takes at most {longest / rate:g} s of a recording, which the model hears at once"

        def check(seconds: float) -> None:
            if seconds * rate > longest + _LOST_SAMPLES:
                raise InvalidRequest(field, why, "INPUT_TOO_LONG")

        first, *others = self.read_windows(audio, wanted, check)
        if others:
            raise InvalidRequest(field, why, "INPUT_TOO_LONG")
        return first.source

    def _check_text(self, text: str, field: str) -> None:
        if len(text) > self._max_chars:
            if self._text.truncation_side:
                why = f"is {len(text)} characters long; of a text that is cut at most {self._max_chars} are taken"
                raise InvalidRequest(field, why, "INPUT_TOO_LONG")
            raise self._too_long(field, f"{len(text)} characters")
        self._prefix_of(text, field)

    def _check_parts(self, parts: list[str], fits: Callable[[str], bool], field: str) -> None:
        if len(parts) > MAX_SENTENCES:
            raise InvalidRequest(field, f"has more than {MAX_SENTENCES} sentences or parts of them", "INPUT_TOO_LONG")
        for part in parts:
            if not fits(part):
                why = f"has a word of {len(part)} characters; the model takes {self.max_tokens} tokens"
                raise InvalidRequest(field, why, "INPUT_TOO_LONG")

    def _prefix_of(self, text: str, field: str) -> str:
        """Return the prefix that a text begins with: none for most models. Raises InvalidRequest if nothing follows."""
        if not text.strip():
            raise InvalidRequest(field, "must not be empty", "EMPTY_INPUT")
        if not (prefixes := self._text.prefixes):
            return ""
        matching = [prefix for prefix in prefixes if text.startswith(prefix)]
        if not matching:
            raise InvalidRequest(field, f"must begin with one of {', '.join(map(repr, prefixes))}")
        longest = max(matching, key=len)
        if not text.removeprefix(longest).strip():
            raise InvalidRequest(field, "must not be empty behind its prefix", "EMPTY_INPUT")
        return longest

    def _check_tokens(self, added: list[bool], field: str, num_around: int = 0) -> None:
        """`added` says for each token of a text whether the tokenizer added it. `num_around` more stand around them."""
        if all(added):
            raise InvalidRequest(field, "holds nothing that the model's tokenizer keeps", "EMPTY_INPUT")
        if (count := len(added) + num_around) > self.max_tokens:
            raise self._too_long(field, f"{count} tokens")

    def _prompt_too_long(self, field: str, length: str) -> InvalidRequest:
        why = f"make a prompt of {length}; the model takes {self.max_tokens} tokens"
        return InvalidRequest(field, why, "INPUT_TOO_LONG")

    def _too_long(self, field: str, length: str) -> InvalidRequest:
        return InvalidRequest(field, f"is {length} long; the model takes {self.max_tokens} tokens", "INPUT_TOO_LONG")
