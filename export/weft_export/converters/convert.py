"""From a Hugging Face directory to a checkpoint of one of our families. None of its code is run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft_export.checkpoints.directory import LoadedCheckpoint, check_layers, check_tables
from weft_export.checkpoints.files import HELD_OUT_FILE, check_directory
from weft_export.checkpoints.formats import ADAPTER_CONFIG, MODULES, QUANTISED
from weft_export.checkpoints.sharing import without_weights
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.filling import fill, plan
from weft_export.converters.generation import Generation, fixed_generation, read_generation
from weft_export.converters.preprocessing import checkpoint_of
from weft_export.converters.registry import MODULE_OF, all_converters, converters_of, hint_for
from weft_export.converters.tensors import NamedTensors, StoredTensors
from weft_export.converters.text.json_file import read_object
from weft_export.errors import CheckpointError
from weft_export.families.registry import family_of
from weft_export.layers.embeddings import BANNED
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import CONFIG_FILE
from weft_proto.tasks import TASKS

# Families of bodies, whose pooling is chosen or said by a file.
EMBEDDERS = frozenset({"text_embedder", "decoder_embedder", "vit_embedder"})


def convert(directory: Path, options: ExportOptions, *, filled: bool = True) -> LoadedCheckpoint:
    """Read a Hugging Face directory; the model is in eval mode and float32.

    If it is not to be filled, its weights stay on meta, and of theirs only names and shapes are read.

    Raises:
        CheckpointError: There are five cases:
            1. A file is missing, or is not what it says.
            2. The kind of model is not supported, or a field of its config.
            3. A weight is missing, not used, or of another shape.
            4. The tokenizer or the image processor is not supported.
            5. There is an adapter among the files.
    """
    check_directory(directory)
    if (directory / ADAPTER_CONFIG).exists():
        raise CheckpointError(
            f"{directory / ADAPTER_CONFIG} lies among the files of a model: transformers adds that adapter to the"
            " weights. Move it and adapter_model.* to a folder of their own: the model is then exported without it, and"
            " `weft export-adapter` puts it beside the bundle"
        )
    config = read_object(directory / CONFIG_FILE)

    def tensors(fields: Fields) -> NamedTensors:
        stored = StoredTensors(directory)
        if all(config.get(key) is None for key in QUANTISED):
            return stored
        from weft_export.converters.quantized.reading import unquantised  # noqa: PLC0415 - late: for such weights alone

        return unquantised(config, fields, stored)

    return convert_tensors(directory, config, tensors, options, filled=filled)


def convert_tensors(
    directory: Path,
    config: dict[str, Any],
    tensors: Callable[[Fields], NamedTensors],
    options: ExportOptions,
    *,
    filled: bool = True,
) -> LoadedCheckpoint:
    """Do the same for a directory whose weights may lie elsewhere. Raises as convert.

    tensors: returns them; it gets config.json, of which it may read fields too.
    """
    embeds = options.pooling is not None or (directory / MODULES).exists()
    converter = converter_of(config, has_labels=bool(options.labels), embeds=embeds)
    fields = Fields(config)
    stored = tensors(fields)
    names = frozenset(stored.entries)
    hf = HfCheckpoint(directory, fields, _generation(directory, converter, config), names, options)
    family = family_of(converter.family)
    check_options(converter, options)
    try:
        sizes = converter.sizes(hf)
        hf.fields.check_all_read()
        check_layers(directory, sizes, len(stored.entries))
        with torch.device("meta"):
            shell = family.model(sizes)
        check_tables(directory, shell)
    except ValueError as error:
        raise CheckpointError(f"{directory / CONFIG_FILE}: {error}") from error
    sources = plan(converter, sizes, hf, shell, stored)
    checkpoint, more = checkpoint_of(hf, config, converter, shell)
    notes = [*hf.fields.notes, *more, *_notes(hf, converter, stored)]
    says_length = hf.generation.max_new_tokens or hf.generation.max_length
    if checkpoint.max_new_tokens is not None and not says_length:
        notes.append(
            f"no file says how long answers are: generate() stops at 20 tokens, and here {checkpoint.max_new_tokens}"
        )
    if not filled:
        return LoadedCheckpoint(checkpoint, tuple(stored.paths), directory / HELD_OUT_FILE, tuple(notes))
    with without_weights():
        model = family.model(sizes)
    weights = fill(sources, stored)
    if hf.generation.banned:
        weights[converter.bias] = _with_bans(weights[converter.bias], hf.generation.banned)
    model.load_state_dict(weights, assign=True)
    return LoadedCheckpoint(
        replace(checkpoint, model=model.eval()),
        tuple(stored.paths),
        directory / HELD_OUT_FILE,
        tuple(notes),
        {ours: source.names for ours, source in sources.items()},
    )


def converter_of(config: dict[str, Any], *, has_labels: bool = False, embeds: bool = False) -> Converter:
    """Return what converts a config. Of two for one class, it is the one that takes labels, or that embeds, if asked.

    Raises:
        CheckpointError: nothing does; the nearest that is supported is named.
    """
    model_type = config["model_type"]
    named = config.get("architectures") or []
    if (
        not isinstance(model_type, str)
        or not isinstance(named, list)
        or not all(isinstance(each, str) for each in named)
    ):
        raise CheckpointError("config.json: model_type must be a string, and architectures a list of strings")
    of_type = converters_of(model_type)
    of_class = [converter for converter in of_type if not named or named[0] in converter.architectures]
    known = [converter for converter in of_class if converter.is_for(config)]
    if known:
        # Of equal ones the first.
        return max(known, key=lambda each: (each.takes_labels == has_labels) + ((each.family in EMBEDDERS) == embeds))
    if of_type:
        classes = dict.fromkeys(name for each in of_type for name in each.architectures)
        raise CheckpointError(f"{named[0]} is not supported; of {model_type}, {', '.join(classes)} are")
    nearest = next(iter(_alike(named)), "")
    hint = hint_for(model_type) or (f"the nearest is {nearest!r}" if nearest else "")
    hint = hint or f"supported are {', '.join(sorted(MODULE_OF))}"
    raise CheckpointError(f"the model_type {model_type!r} is not supported; {hint}")


def _alike(named: list[str]) -> list[str]:
    """Return the first kind of model that does what a class of this name does."""
    ending = named[0][named[0].find("For") :] if named and "For" in named[0] else None
    return [each.model_type for each in all_converters() if ending and each.architectures[0].endswith(ending)]


def _generation(directory: Path, converter: Converter, config: dict[str, Any]) -> Generation:
    nested = config.get(converter.nested)
    said = {name: value for name, value in config.items() if value is not None}
    # What a class takes where a config says nothing does not count: transformers reads the file alone.
    given = {**(nested if isinstance(nested, dict) else {}), **said}
    try:
        fixed = converter.fixed(config)
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{directory / CONFIG_FILE} does not say how texts begin and end") from error
    task = family_of(converter.family).task
    reads_source = TASKS[task].takes_language
    if not converter.follows_settings:
        return fixed_generation(directory, fixed)
    return read_generation(directory, given, fixed, reads_source=reads_source, has_bias=bool(converter.bias))


def check_options(converter: Converter, options: ExportOptions) -> None:
    """Raise CheckpointError for an option that is not for such checkpoints."""
    if options.labels and not converter.takes_labels:
        raise CheckpointError(f"labels are chosen for CLIPModel; {converter.architectures[0]} has none, or its own")
    if options.pooling is not None and (converter.family not in EMBEDDERS or not converter.pools):
        raise CheckpointError(f"pooling is chosen for the body of an encoder, not for {converter.architectures[0]}")
    if options.max_tokens is not None and not TASKS[family_of(converter.family).task].has_text:
        raise CheckpointError(f"texts have a length, which {converter.architectures[0]} neither reads nor writes")
    family = family_of(converter.family)
    reads_source = TASKS[family.task].takes_language or TASKS[family.task].takes_question
    if options.max_source_tokens is not None and not reads_source:
        raise CheckpointError(f"sources have a length for translators, not for {converter.architectures[0]}")
    if options.max_pixels is not None and converter.family not in {"qwen_vl", "qwen3_vl"}:
        raise CheckpointError(f"pixels are bounded for pictures of any size, not for {converter.architectures[0]}")
    if options.truncate and not TASKS[family_of(converter.family).task].may_cut:
        named = converter.architectures[0]
        raise CheckpointError(f"texts are cut for classifiers, taggers and embedders of texts, not for {named}")
    if options.pairs and converter.family != "encoder_only":
        raise CheckpointError(f"pairs are chosen for a classifier of texts, not for {converter.architectures[0]}")
    if options.label_text is not None:
        _check_label_text(converter, options.label_text)


def _check_label_text(converter: Converter, text: str) -> None:
    matches = TASKS[family_of(converter.family).task].matches
    if not matches and not converter.takes_labels:
        named = converter.architectures[0]
        raise CheckpointError(f"the text of a label is chosen for CLIPModel and SiglipModel, not for {named}")
    if "{}" not in text:
        raise CheckpointError("the text of a label has no {} where the label stands")


def _with_bans(bias: Tensor, banned: tuple[int, ...]) -> Tensor:
    bias = bias.clone()
    bias[[token for token in banned if token < len(bias)]] = BANNED
    return bias


def _notes(hf: HfCheckpoint, converter: Converter, stored: NamedTensors) -> list[str]:
    notes = []
    if stored.is_pickle:
        notes.append("the weights are pickles, read without running code; model.safetensors would be safer to pass on")
    generation, not_carried = hf.generation, [*hf.generation.not_carried]
    if TASKS[family_of(converter.family).task].takes_prompt:
        # Lengths count the prompt, whose own nobody knows before. The others are of models with a start token.
        given = {
            "max_length": generation.max_length,
            "min_length": generation.min_length or None,
            "forced_bos_token_id": generation.forced_id,
            "forced_eos_token_id": generation.forced_end_id,
        }
        not_carried += [f"{name} is {value}" for name, value in given.items() if value is not None]
    if not_carried:
        settings = ", ".join(not_carried)
        notes.append(f"of the checkpoint's settings of generate(), answers do not follow: {settings}")
    return [*notes, *generation.notes]
