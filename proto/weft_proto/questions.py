"""What a model is fed that answers questions about pictures. Exporter and server both ask here."""

from collections.abc import Iterable

from weft_proto.languages import Languages
from weft_proto.v1 import bundle_pb2


def picture_places(image: bundle_pb2.ImageSpec) -> int:
    """Return how many places an encoder makes of a picture: of a memory, of a cache, or of a prompt."""
    return image.num_class_tokens + image.grid_rows * image.grid_columns + bool(image.tiling.grids)


def begins_filled(states: Iterable[bundle_pb2.StateTensor]) -> bool:
    """Whether caches begin with what an encoder writes: with a picture."""
    return any(state.kind == bundle_pb2.STATE_KIND_KV_CACHE and state.encoder_output for state in states)


def question_fault(text: bundle_pb2.TextSpec, num_places: int) -> str | None:
    """Say what is wrong with the tokens of a model that answers, or None. Its caches begin with `num_places`, or 0."""
    longest = Languages(text).longest_prefix + text.max_source_tokens
    needed = num_places + longest + text.max_new_tokens
    faults = {
        "text.max_source_tokens is missing": not text.max_source_tokens,
        f"text.source_vocab_size is {text.source_vocab_size}, and the decoder that reads a question takes"
        f" text.target_vocab_size, {text.target_vocab_size}": text.source_vocab_size != text.target_vocab_size,
        f"text.max_total_tokens is {text.max_total_tokens}; {num_places} places of a picture, a question and prefix of"
        f" {longest} tokens and text.max_new_tokens {text.max_new_tokens} need {needed}": needed
        > text.max_total_tokens,
    }
    return next((fault for fault, holds in faults.items() if holds), None)
