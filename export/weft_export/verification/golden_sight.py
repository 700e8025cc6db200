"""The golden request of a model whose prompts hold pictures: a picture, and a question behind it."""

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer
from weft_export.errors import CheckpointError
from weft_export.families.writer import Writer
from weft_export.graphs.answering import Row, Run
from weft_export.layers.tiles import arranged
from weft_proto.splitting import Split, split_text
from weft_proto.tiling import Cut, Tiled, places_of
from weft_proto.v1 import bundle_pb2


def row_behind(checkpoint: Checkpoint, source: tuple[Tensor, ...], tokens: list[int]) -> Row:
    """Return a row of what a model takes beside its tokens, if anything."""
    if checkpoint.sees:
        assert isinstance(checkpoint.model, Writer)
        return Row(
            None, tokens, features=checkpoint.model.shown(*source), offsets=_offsets(checkpoint.model, tokens, source)
        )
    asked = source[1][0] if isinstance(checkpoint.model, Writer) and checkpoint.model.reads_question else None
    return Row(source[0][0] if source else None, tokens, asked=asked)


def row_seen(run: Run, checkpoint: Checkpoint, asked: tuple[Tensor, ...]) -> Row:
    """Return the row of a golden request, given as `pictured` does, with what graphs give for its picture."""
    ids, pixels, *arrangement = asked
    tokens = ids[0].tolist()
    assert isinstance(checkpoint.model, Writer)
    with torch.inference_mode():
        (features,) = run(bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER, {"pixel_values": pixels}).values()
    features = arranged(features, *arrangement) if arrangement else features
    return Row(None, tokens, features=features, offsets=_offsets(checkpoint.model, tokens, asked[1:]))


def _offsets(model: Writer, tokens: list[int], source: tuple[Tensor, ...]) -> Tensor | None:
    return model.offsets(torch.tensor([tokens]), *source) if model.offsets_positions else None


def pictured(checkpoint: Checkpoint, golden: bundle_pb2.Golden) -> tuple[Tensor, ...]:
    """Return the ids of a picture with a question behind it, and the picture as Writer.shown takes it."""
    text, image = checkpoint.text_spec, checkpoint.image
    assert image is not None, "a model that sees has no image. This is a bug."
    tokenizer = read_tokenizer(checkpoint, text.source_tokenizer)
    try:
        asked = encode_source(checkpoint, tokenizer, golden.question)
    except CheckpointError as error:
        raise CheckpointError(f"golden.question {error}") from error
    picture, cut = _picture(checkpoint, golden)
    stretches = iter(places_of(image, cut))
    shown = [text.image_id]
    if isinstance(cut, Split):
        around = split_text(image.tiling, cut.grid, str(tokenizer.id_to_token(text.image_id)))
        shown = tokenizer.encode(around, add_special_tokens=False).ids
    ids: list[int] = []
    for each in shown:
        ids += [text.source_vocab_size] * next(stretches) if each == text.image_id else [each]
    ids += asked
    if len(ids) >= text.max_total_tokens:
        raise CheckpointError(f"golden: picture and question have {len(ids)} tokens; {text.max_total_tokens} are all")
    return torch.tensor([ids]), *picture


def _picture(checkpoint: Checkpoint, golden: bundle_pb2.Golden) -> tuple[tuple[Tensor, ...], Cut | None]:
    """Return the pixel values of a golden picture, if its tiles are laid out how that is done; and how it is cut."""
    data, image = checkpoint.files[golden.image_path], checkpoint.image
    pixels = checkpoint.read_media(golden.image_path, data)[None]
    if image is None or not image.HasField("tiling"):
        return (pixels,), None
    from weft_export.checkpoints.tiles import read_tiles  # noqa: PLC0415 - late: for models that read tiles

    read, cut = read_tiles(data, image)
    tiles = torch.from_numpy(read)
    if not isinstance(cut, Tiled):
        return (tiles,), cut
    return (tiles, torch.tensor([*cut.grid, *cut.kept, *cut.pooled])), cut
