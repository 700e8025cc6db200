"""Each field of a config, set to other values: our answers are those of transformers, or we refuse and name the field.

A config.json is changed in one field at a time. Its weights stay, or are made anew where they do not fit. Where
transformers has no such model, there is nothing to compare.
"""

import copy
import json
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from captioner_kinds import CAPTIONERS
from config_changes import ABSENT, changed, changes
from decoder_kinds import DECODERS
from encoder_kinds import CLASSIFIERS, FILLERS, TAGGERS, masking
from hf_models import LOGITS, VOCAB, Kind, enliven, furthest, greedy, made, their_greedy, token_rows
from hybrid_kinds import STATE_SPACES
from picture_kinds import PICTURES
from prompted_kinds import PROMPTED, ids_of, inputs_of, logits_of, made_prompted, written_by
from question_kinds import ASKING, made_asking
from seq2seq_kinds import SEQ2SEQ
from sight_kinds import SEEING, SPLITTING, TILING, chat_of, made_seeing, pictures, their_inputs
from test_captioners import their_captions, their_logits
from test_captioners import with_processor as captioner_pixels
from test_pictures import with_processor as picture_sides

from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.tiling import tiled

GENERATORS = [*DECODERS, *STATE_SPACES]
LABELLING = [*CLASSIFIERS, *TAGGERS, *FILLERS]
KINDS = [*GENERATORS, *SEQ2SEQ, *CAPTIONERS, *LABELLING, *PICTURES, *SEEING, *TILING, *SPLITTING, *ASKING, *PROMPTED]
# Their prompts hold pictures.
PICTURED = [*SEEING, *TILING, *SPLITTING]
NEW_TOKENS, LENGTH = 6, 40
MOST_NUMBERS = 1 << 27
# Some fields contradict others, or the weights: then the others are named, or the weights listed.
NAMED = ("config.json", "weights are missing", "are not used", "and must be")


@dataclass(frozen=True)
class Original:
    """A random model on disk: its config, what it is asked (of one that sees, all inputs), and what it answers."""

    kind: Kind
    directory: Path
    config: Any
    pixels: Any
    answer: Any


def attempted(make):
    """What a function of transformers returns; None where it refuses, by whatever error."""
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            return make()
    except Exception:  # noqa: BLE001  theirs are of many kinds
        return None


def original_of(kind, directory):
    """Write a random model. What its config does not say of writing, nothing says."""
    if kind in ASKING:
        model, processor = made_asking(kind, 0, directory)
        config, pixels = model.config, dict(processor(images=pictures(1)[0], text="a question", return_tensors="pt"))
    elif kind in PROMPTED:
        model, processor = made_prompted(kind, 0, directory)
        config, pixels = model.config, inputs_of(kind, processor, *pictures(1), "a question")
    elif kind in PICTURED:
        model, processor = made_seeing(kind, 0, directory)
        chat = chat_of(pictures(2)) if kind in SEEING else chat_of(pictures(2))[:1]
        config, pixels = model.config, dict(their_inputs(processor, chat))
    else:
        config, pixels = made(kind, 0, directory).config, None
    (directory / "generation_config.json").unlink(missing_ok=True)
    if kind in FILLERS:
        masking(directory)
    if kind in CAPTIONERS:
        pixels = captioner_pixels(directory)
    elif kind in PICTURES:
        given = json.loads((directory / "config.json").read_text())
        sides = picture_sides(directory, given, 0)
        pixels = torch.randn(2, given.get("vision_config", given)["num_channels"], *sides)
    answer = attempted(lambda: their_answer(kind, loaded(kind, directory)[0], pixels))
    assert answer is not None
    return Original(kind, directory, config, pixels, answer)


def loaded(kind, directory):
    """Their model of a directory, and whether all its weights were there and of use."""
    model_class = getattr(transformers, kind.architecture)
    model, found = model_class.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    return model.eval(), not any(found[f"{which}_keys"] for which in ("missing", "mismatched", "unexpected"))


def theirs_of(kind, directory, config):
    """Their model of a changed directory, which gets other weights where its own do not fit.

    MemoryError for one as large as released ones are: without its part of the config, a class takes theirs.
    """
    with torch.device("meta"):
        shell = getattr(transformers, kind.architecture)(copy.deepcopy(config))
    if sum(each.numel() for each in shell.parameters()) > MOST_NUMBERS:
        raise MemoryError
    model, fits = loaded(kind, directory)
    if not fits:
        given = (directory / "config.json").read_text()
        torch.manual_seed(0)
        model = type(model)(config)
        enliven(model, kind.gain)
        model.save_pretrained(directory)
        (directory / "config.json").write_text(given)
        (directory / "generation_config.json").unlink(missing_ok=True)
        model, fits = loaded(kind, directory)
        assert fits
    return model


def their_answer(kind, model, pixels):
    """Logits of a random request, and what is written greedily, if anything is."""
    if kind in PROMPTED:
        return logits_of(model, pixels), [written_by(model, pixels, NEW_TOKENS, use_cache=False)]
    if kind in PICTURED:
        return model(**pixels).logits, [their_greedy(model, pixels, NEW_TOKENS, use_cache=False)]
    if kind in ASKING:
        target = torch.tensor(token_rows(VOCAB, (LENGTH // 2,), 3))
        written = [their_greedy(model, pixels, NEW_TOKENS, use_cache=False)]
        return model(**pixels, decoder_input_ids=target).logits, written
    ids = torch.tensor(token_rows(VOCAB, (LENGTH,), 3))
    if kind in PICTURES:
        return model(pixels, return_dict=True).logits, None
    if kind in CAPTIONERS:
        return their_logits(model, pixels[:1], ids), their_captions(model, pixels[:1], NEW_TOKENS)
    # Their cache of a window of 1 token sees more than that.
    written = (
        None
        if kind in (*CLASSIFIERS, *TAGGERS, *FILLERS)
        else [their_greedy(model, {"input_ids": ids}, NEW_TOKENS, use_cache=False)]
    )
    target = {"decoder_input_ids": ids[:, : LENGTH // 2]} if kind in SEQ2SEQ else {}
    return model(input_ids=ids, return_dict=True, **target).logits, written


def answer_about(checkpoint, *, input_ids, pixel_values, image_sizes=None, **_):
    """What ours answers to a chat with pictures, or with one in tiles."""
    places = input_ids.masked_fill(input_ids == checkpoint.text.image_id, checkpoint.text.source_vocab_size)
    source = (pixel_values.flatten(0, -4),)
    if image_sizes is not None:
        height, width = image_sizes[0].tolist()
        cut = tiled(checkpoint.image, width, height)
        source = pixel_values[0], torch.tensor([*cut.grid, *cut.kept, *cut.pooled])
    row = Row(None, places[0].tolist(), features=checkpoint.model.shown(*source))
    return checkpoint.model.decode(places, *source), greedy(checkpoint, [row], NEW_TOKENS)


def answer_to(checkpoint, input_ids, pixel_values):
    """What ours answers to a picture and a question, of whose ids theirs has those of places before."""
    asked = input_ids[:, checkpoint.model.config.num_places :]
    lengths, prefix = torch.tensor([asked.shape[1]], dtype=torch.int32), list(checkpoint.text.prefix_ids)
    row = Row(pixel_values[0], [checkpoint.text.start_id, *prefix], asked=asked[0])
    written = [[*prefix, *greedy(checkpoint, [row], NEW_TOKENS - len(prefix))[0]]]
    target = torch.tensor(token_rows(VOCAB, (LENGTH // 2,), 3))
    return checkpoint.model.decode(target, pixel_values, asked, lengths), written


def our_answer(kind, checkpoint, pixels):  # noqa: PLR0911 - one for each kind of input
    """The same of ours."""
    model, ids = checkpoint.model, torch.tensor(token_rows(VOCAB, (LENGTH,), 3))
    lengths = torch.tensor([LENGTH], dtype=torch.int32)
    with torch.inference_mode():
        if kind in PROMPTED:
            row = Row(pixels["pixel_values"][0], ids_of(pixels)[0].tolist())
            return model.decode(ids_of(pixels), pixels["pixel_values"]), greedy(checkpoint, [row], NEW_TOKENS)
        if kind in PICTURED:
            return answer_about(checkpoint, **pixels)
        if kind in ASKING:
            return answer_to(checkpoint, pixels["input_ids"], pixels["pixel_values"])
        if kind in PICTURES:
            return model(pixels), None
        if kind in GENERATORS:
            return model.decode(ids), greedy(checkpoint, [Row(None, ids[0].tolist())], NEW_TOKENS)
        if kind in FILLERS:
            return model(ids, lengths, torch.arange(LENGTH)[None]), None
        if kind not in (*SEQ2SEQ, *CAPTIONERS):
            return model(ids, lengths), None
        prefix = list(checkpoint.text.prefix_ids)
        row = Row(pixels[0] if kind in CAPTIONERS else ids[0], [checkpoint.text.start_id, *prefix])
        written = [[*prefix, *greedy(checkpoint, [row], NEW_TOKENS - len(prefix))[0]]]
        if kind in CAPTIONERS:
            return model.decode(ids, pixels[:1]), written
        return model.decode(ids[:, : LENGTH // 2], ids, lengths), written


def fault(original, path, value, work):
    """What is wrong with how we read a changed config; None if nothing is."""
    kind, given = original.kind, json.loads((original.directory / "config.json").read_text())
    other = changed(given, path, value)
    config = attempted(lambda: type(original.config).from_dict(copy.deepcopy(other)))
    if other == given or config is None:
        return None
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original.directory, work)
    (work / "config.json").write_text(json.dumps(other))
    expected = original.answer
    if config.to_dict() != original.config.to_dict():
        expected = attempted(lambda: their_answer(kind, theirs_of(kind, work, config), original.pixels))
    if expected is None:
        return None
    try:
        length = 64 if kind in GENERATORS else 600 if kind in PICTURED else None
        result = convert(work, ExportOptions(max_tokens=length))
    except CheckpointError as error:
        return None if any(name in str(error) for name in (*path, *NAMED)) else f"refused without its name: {error}"
    text = result.checkpoint.text
    if text and LENGTH > min(size for size in (text.max_source_tokens, text.max_total_tokens, LENGTH) if size):
        return None  # what is asked is too long for it
    return difference(expected, our_answer(kind, result.checkpoint, original.pixels), path[-1], result.notes)


def difference(expected, actual, name, notes):
    """How two answers differ; None if they do not. What is written may where a note names the setting."""
    (logits, written), (our_logits, ours) = expected, actual
    if logits.shape != our_logits.shape or not furthest(our_logits, logits) <= LOGITS:
        return "other logits"
    if written != ours and not any(name in note for note in notes):
        return f"writes {ours}, not {written}"
    return None


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_field_of_a_config_is_followed_or_refused(kind, tmp_path):
    """Never a silently different model, whatever one field of its config.json says, or does not say."""
    original = original_of(kind, tmp_path / "original")
    faults = {
        f"{'.'.join(path)}: {'absent' if value is ABSENT else value!r}": found
        for path, value in changes(original.config)
        if (found := fault(original, path, value, tmp_path / "changed"))
    }
    assert {} == faults
