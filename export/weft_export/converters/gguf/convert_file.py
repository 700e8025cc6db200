"""From a GGUF file to a checkpoint of one of our families, by way of the Hugging Face directory that it came from."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from weft_export.checkpoints.directory import LoadedCheckpoint
from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_export.converters.convert import convert_tensors
from weft_export.converters.generation import GENERATION_FILE
from weft_export.converters.gguf.config import USED_HERE, architecture_of, config_of
from weft_export.converters.gguf.header import Header, read_header
from weft_export.converters.gguf.names import title_of
from weft_export.converters.gguf.tokens import write_tokenizer
from weft_export.converters.gguf.weights import gguf_tensors
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import CONFIG_FILE

# Of the model's name, its author, and how the file was made.
_HARMLESS = ("general.", "split.", "quantize.")


def convert_file(path: Path, options: ExportOptions, *, filled: bool = True) -> LoadedCheckpoint:
    """Read a GGUF file, and its other parts if it is one of several; the model is in eval mode and float32.

    Raises:
        CheckpointError: the file is not what it says; what it holds is not read; or as `convert`.
    """
    header = read_header(path)
    architecture, name = architecture_of(header), header.values["general.architecture"]
    _check_keys(header, name)
    config, heads = config_of(header)
    stored = gguf_tensors(header, architecture, heads, USED_HERE)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / title_of(path)
        directory.mkdir()
        try:
            generation, notes = write_tokenizer(header, name, directory)
            (directory / CONFIG_FILE).write_text(json.dumps(config))
            (directory / GENERATION_FILE).write_text(json.dumps(generation))
            converted = convert_tensors(directory, config, lambda _: stored, options, filled=filled)
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(str(directory), str(path))) from error
    notes += _notes(header)
    return replace(converted, held_out=path.parent / HELD_OUT_FILE, notes=(*converted.notes, *notes))


def _check_keys(header: Header, name: str) -> None:
    known = (*_HARMLESS, "tokenizer.", f"{name}.")
    unknown = [key for key in header.values if not key.startswith(known)]
    if unknown:
        raise CheckpointError(f"{header.paths[0]} has keys that are not known here: {', '.join(unknown[:8]):.300}")


def _notes(header: Header) -> list[str]:
    kinds = sorted({place.kind.name for place in header.tensors.values() if place.kind.is_rounded})
    notes = []
    if kinds:
        exact = "; products in Q4_0 keep their 4 bits at --precision int4" if "Q4_0" in kinds else ""
        notes.append(f"weights in {', '.join(kinds)} are widened to float32, which loses nothing{exact}")
    sampling = {key: value for key, value in header.values.items() if key.startswith("general.sampling.")}
    if sampling:
        said = ", ".join(f"{key} is {value!r:.20}" for key, value in sampling.items())
        notes.append(f"of the file's settings of sampling, answers do not follow: {said}")
    return notes
