"""What a model is fed that answers questions about pictures. Exporter and server both ask here."""

from collections.abc import Iterable

from weft_proto.languages import Languages
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

# What of a sentence of a form is what a question has besides.
_INPUT = "{input}"


def picture_places(image: bundle_pb2.ImageSpec) -> int:
    """Return how many places an encoder makes of a picture: of a memory, of a cache, or of a prompt."""
    return image.num_class_tokens + image.grid_rows * image.grid_columns + bool(image.tiling.grids)


def begins_filled(states: Iterable[bundle_pb2.StateTensor]) -> bool:
    """Whether caches begin with what an encoder writes: with a picture."""
    return any(state.kind == bundle_pb2.STATE_KIND_KV_CACHE and state.encoder_output for state in states)


def encoder_asks(text: bundle_pb2.TextSpec) -> bool:
    """Whether an encoder reads a question behind its picture."""
    return text.HasField("question")


def decoder_asks(task: common_pb2.Task.ValueType, text: bundle_pb2.TextSpec) -> bool:
    """Whether a decoder reads a question behind its start token."""
    return TASKS[task].takes_question and not encoder_asks(text)


def asked_text(text: bundle_pb2.TextSpec, question: str) -> str:
    """Return what a model reads of a question: the sentence of a form, if it has a form's token.

    Raises ValueError, with what goes on from the name of the question, where a token that stands alone does not.
    """
    ordered = sorted(text.question.forms, key=lambda form: _INPUT in form.text)
    form = next((each for each in ordered if each.token in question), None)
    if form is None:
        return question
    if _INPUT in form.text:
        return form.text.replace(_INPUT, question.replace(form.token, "").strip())
    if question != form.token:
        raise ValueError(f"must be {form.token!r} alone: the model takes nothing beside it")
    return form.text


def question_fault(text: bundle_pb2.TextSpec, num_places: int) -> str | None:
    """Say what is wrong with the tokens of a model that answers, or None. Its caches begin with `num_places`, or 0."""
    in_decoder = 0 if encoder_asks(text) else text.max_source_tokens
    longest = Languages(text).longest_prefix + in_decoder
    needed = num_places + longest + text.max_new_tokens
    asks_decoder = in_decoder > 0
    faults = {
        "text.max_source_tokens is missing": not text.max_source_tokens,
        f"text.source_vocab_size is {text.source_vocab_size}, and the decoder that reads a question takes"
        f" text.target_vocab_size, {text.target_vocab_size}": asks_decoder
        and text.source_vocab_size != text.target_vocab_size,
        f"text.max_total_tokens is {text.max_total_tokens}; {num_places} places of a picture, a question and prefix of"
        f" {longest} tokens and text.max_new_tokens {text.max_new_tokens} need {needed}": needed
        > text.max_total_tokens,
        "text.may_ask_nothing is for models whose decoder reads a question": encoder_asks(text)
        and text.may_ask_nothing,
        "text.question is for models whose caches begin with no picture": encoder_asks(text) and num_places > 0,
    }
    faults |= dict.fromkeys(_form_faults(text), True)
    return next((fault for fault, holds in faults.items() if holds), None)


def _form_faults(text: bundle_pb2.TextSpec) -> Iterable[str]:
    spec = text.question
    if spec.image_id >= max(1, text.source_vocab_size):
        yield f"text.question.image_id {spec.image_id} is outside the source vocabulary"
    tokens = [form.token for form in spec.forms]
    if len(set(tokens)) != len(tokens):
        yield "text.question.forms has a token twice"
    for form in spec.forms:
        if not form.token or not form.text:
            yield "text.question.forms has one without a token or a text"
        elif form.text.count(_INPUT) > 1:
            yield f"text.question.forms: the text of {form.token!r} has {_INPUT} more than once"
