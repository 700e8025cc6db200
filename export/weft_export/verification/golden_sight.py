"""The golden request of a model whose prompts hold pictures: a picture, and a question behind it."""

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer
from weft_export.errors import CheckpointError
from weft_export.families.writer import Writer
from weft_export.graphs.answering import Row, Run
from weft_proto.questions import picture_places
from weft_proto.v1 import bundle_pb2


def row_behind(checkpoint: Checkpoint, source: tuple[Tensor, ...], tokens: list[int]) -> Row:
    """Return a row of what a model takes beside its tokens, if anything."""
    if checkpoint.sees:
        assert isinstance(checkpoint.model, Writer)
        return Row(None, tokens, features=checkpoint.model.see(*source))
    return Row(source[0][0] if source else None, tokens)


def features_of(run: Run, checkpoint: Checkpoint, golden: bundle_pb2.Golden) -> Tensor:
    """Return what graphs give for the picture of a golden request."""
    pixels = checkpoint.read_media(golden.image_path, checkpoint.files[golden.image_path])[None]
    with torch.inference_mode():
        (features,) = run(bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER, {"pixel_values": pixels}).values()
    return features


def pictured(checkpoint: Checkpoint, golden: bundle_pb2.Golden) -> tuple[Tensor, ...]:
    """Return the ids of a picture with a question behind it, and the picture."""
    text, image = checkpoint.text_spec, checkpoint.image
    assert image is not None, "a model that sees has no image. This is a bug."
    try:
        asked = encode_source(checkpoint, read_tokenizer(checkpoint, text.source_tokenizer), golden.question)
    except CheckpointError as error:
        raise CheckpointError(f"golden.question {error}") from error
    ids = [text.source_vocab_size] * picture_places(image) + asked
    if len(ids) >= text.max_total_tokens:
        raise CheckpointError(f"golden: picture and question have {len(ids)} tokens; {text.max_total_tokens} are all")
    return torch.tensor([ids]), checkpoint.read_media(golden.image_path, checkpoint.files[golden.image_path])[None]
