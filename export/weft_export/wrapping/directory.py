"""A directory with an ONNX file and what Hugging Face's tools put beside it: what needs no flag then.

Optimum writes such a one: `optimum-cli export onnx`. So does sentence-transformers: `save_pretrained` with its backend.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_export.converters.pooling_file import pooling_in
from weft_export.converters.text.json_file import read_list, read_object, read_object_if_there
from weft_export.converters.text.settings import CONFIG, length_said
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import CONFIG_FILE

_FIRST = "model.onnx"
_POOLING_CONFIG = "1_Pooling/config.json"
# Endings of classes in config.json, and what such a model does.
_TASKS = {
    "ForImageClassification": "classify-image",
    "ForSequenceClassification": "classify-text",
    "ForTokenClassification": "tag",
}
_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class Beside:
    """What lies beside an ONNX file. None: it does not say.

    max_tokens: the longest text, by the tokenizer or the model.
    normalized: whether vectors have the length 1, by modules.json.
    """

    task: str | None = None
    labels: Path | None = None
    tokenizer: Path | None = None
    processor: Path | None = None
    pooling: str | None = None
    max_tokens: int | None = None
    normalized: bool | None = None


def find_model(given: Path) -> Path:
    """Return the ONNX file that a path means: itself, or the one of a directory.

    Raises:
        CheckpointError: a directory has none, or several of which none is model.onnx.
    """
    if not given.is_dir():
        return given
    for place in (given / _FIRST, given / "onnx" / _FIRST):
        if place.is_file():
            return place
    found = sorted([*given.glob("*.onnx"), *(given / "onnx").glob("*.onnx")])
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise CheckpointError(f"{given} has no {_FIRST}, and other .onnx files: {names}. Give the path of the file")
    return found[0]


def read_beside(given: Path) -> Beside:
    """Return what a directory says of its ONNX file. Of a file alone nothing is said."""
    if not given.is_dir() or not (given / CONFIG_FILE).is_file():
        return Beside()
    config = read_object(given / CONFIG_FILE)
    architectures = config.get("architectures") or [""]
    name = architectures[0] if isinstance(architectures, list) and isinstance(architectures[0], str) else ""
    task = next((task for ending, task in _TASKS.items() if name.endswith(ending)), None)
    pooling = given / _POOLING_CONFIG
    tokenizer, processor = given / "tokenizer.json", given / "preprocessor_config.json"
    if config.get("problem_type") not in (None, "single_label_classification"):
        raise CheckpointError(f"{given}: a model of problem_type {config['problem_type']!r:.80} cannot be wrapped")
    modules = _modules(given / "modules.json")
    if task is None and modules:
        task = "embed-text"
    return Beside(
        task,
        given / CONFIG_FILE if "id2label" in config and task and not task.startswith("embed") else None,
        tokenizer if tokenizer.is_file() else None,
        processor if processor.is_file() else None,
        pooling_in(pooling, read_object(pooling)) if pooling.is_file() else None,
        _longest(given, config),
        "Normalize" in modules if modules else None,
    )


def _modules(path: Path) -> list[str]:
    """Return the kinds of a sentence-transformers' modules, in their order; none without the file.

    Raises:
        CheckpointError: one is of a kind that is in no graph and that `weft wrap` does not add.
    """
    if not path.is_file():
        return []
    try:
        kinds = [str(each["type"]).rpartition(".")[2] for each in read_list(path)]
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is no list of modules") from error
    for kind in kinds:
        if kind not in _MODULES:
            raise CheckpointError(f"{path} has a module of the kind {kind!r:.80}; only {', '.join(_MODULES)} are known")
    return kinds


def _longest(given: Path, config: Mapping[str, Any]) -> int | None:
    """Return the least of the lengths that files state. Tokenizers without one state 10^30."""
    of_tokenizer, of_texts = (read_object_if_there(given / name) for name in (CONFIG, "sentence_bert_config.json"))
    stated = [config.get("max_position_embeddings"), length_said(of_tokenizer), of_texts.get("max_seq_length")]
    lengths = [each for each in stated if isinstance(each, int) and not isinstance(each, bool) and each > 0]
    return min(lengths, default=None)
