"""Vectors of single tokens: what a graph gives for each, and how texts are read that have them."""

from weft_proto.tasks import Task
from weft_proto.v1 import bundle_pb2, common_pb2

MAX_VECTOR_BYTES = 67_108_864
"""Of all vectors of tokens in one answer."""
BYTES_OF_A_NUMBER = 4
MAX_KINDS = 8
"""Of what one request asks for. There are three, which it may repeat."""


def has_token_vectors(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether a graph gives a row for each token, and not one vector of the whole input."""
    return manifest.embedding.HasField("tokens")


def row_width(spec: bundle_pb2.EmbeddingSpec) -> int:
    """Return how many numbers the graph gives for an input, or for each of its tokens: a vector, perhaps a weight."""
    return spec.dimensions + spec.tokens.weighs


def vector_kinds(spec: bundle_pb2.EmbeddingSpec) -> list[common_pb2.VectorKind.ValueType]:
    """Return what a request may ask for; first what it gets where it does not say."""
    if not spec.HasField("tokens"):
        return [common_pb2.VECTOR_KIND_WHOLE]
    if spec.tokens.weighs:
        return [common_pb2.VECTOR_KIND_WHOLE, common_pb2.VECTOR_KIND_TOKENS, common_pb2.VECTOR_KIND_WEIGHTS]
    return [common_pb2.VECTOR_KIND_TOKENS]


def side_of(text: bundle_pb2.TextSpec, prompt_name: str) -> bundle_pb2.TextSide | None:
    """Return how texts with the prompt of a name are read besides; None where nothing is said of them."""
    return next((side for side in text.sides if side.prompt_name == prompt_name), None)


def default_length(text: bundle_pb2.TextSpec) -> int:
    """Return how many tokens a text has at most that names no prompt; of a prompt of a chat 0."""
    side = side_of(text, text.default_prompt_name)
    return text.max_source_tokens if side is None else side.max_tokens


def sides_fault(text: bundle_pb2.TextSpec, task: Task, *, has_rows: bool) -> str | None:
    """Say what is wrong with the sides of a model, or None. `has_rows`: its graph gives a row for each token."""
    names = [side.prompt_name for side in text.sides]
    prompts = {prompt.name for prompt in text.prompts}
    faults = {
        "text.sides are for models with a vector for each token": names and not (task.takes_prompt_name and has_rows),
        "text.sides has a prompt_name twice": len(set(names)) != len(names),
        "text.sides names a prompt that is none of text.prompts": set(names) - prompts,
        "text.sides leaves a prompt out": names and prompts - set(names),
        "text.sides, and text.default_prompt_name is none of them": names and text.default_prompt_name not in names,
    }
    for side in text.sides:
        bounds = side.fill_to <= side.max_tokens <= text.max_source_tokens
        faults |= {
            f"text.sides: {side.prompt_name!r:.80} does not fit text.max_source_tokens": not bounds,
            f"text.sides: fill_id {side.fill_id} is outside the vocabulary": side.fill_id >= text.source_vocab_size,
        }
    return next((sentence for sentence, is_so in faults.items() if is_so), None)


def tokens_fault(spec: bundle_pb2.EmbeddingSpec, task: Task) -> str | None:
    """Say what is wrong with the vectors of tokens that a manifest claims, or None."""
    has_none = spec.pooling == bundle_pb2.POOLING_NONE
    has_rows = spec.HasField("tokens")
    faults = {
        "embedding.tokens is for embed_text": has_rows and (task.matches or not task.takes_text),
        "embedding.pooling is POOLING_NONE, and embedding.tokens is missing": has_none and not has_rows,
        "embedding.tokens.weighs is for a pooling, and needed there": has_rows and spec.tokens.weighs == has_none,
    }
    return next((sentence for sentence, is_so in faults.items() if is_so), None)
