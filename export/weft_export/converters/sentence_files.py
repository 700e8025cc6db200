"""The files of sentence-transformers beside a body: its modules, and what is done with a text before and behind.

The tables have the keys that version 6.2 reads, and those of before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from weft_export.checkpoints.formats import MODULES
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.keys import NEUTRAL, USED, Noted, Only, Table, check_keys
from weft_export.converters.text.json_file import read_list, read_object, read_object_if_there
from weft_export.converters.text.settings import CONFIG, length_said
from weft_export.converters.text.side import length_of
from weft_export.errors import CheckpointError

MODEL = "config_sentence_transformers.json"
EMBEDDER, JUDGE = "SentenceTransformer", "CrossEncoder"
PYLATE = "ColBERT"
LATE = (PYLATE, "MultiVectorEncoder")
"""The classes of models with a vector for each token: late_interaction.py."""
# Of these files the first that is there counts.
TRANSFORMERS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_POOLED = "sentence_embedding"
_MOST_MODULES = 16
# Their classes are under this name. A class of somebody else is code, which is not run.
_OWN = "sentence_transformers."
_OF_PYLATE = "pylate.models.Dense.Dense"
PYLATE_KEYS = (
    "query_prefix",
    "document_prefix",
    "query_length",
    "document_length",
    "do_query_expansion",
    "query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
    "skiplist_words",
)
"""Keys of the model's file that PyLate has, with those that sentence-transformers reads beside them."""

MODEL_KEYS: Table = {
    "model_type": USED,
    "activation_fn": USED,
    "prompts": USED,
    "default_prompt_name": USED,
    "truncate_dim": USED,
    "similarity_fn_name": NEUTRAL,
    "keep_in_fp32_modules": NEUTRAL,
    "requirements": NEUTRAL,
    "__version__": NEUTRAL,
}
MODULE_KEYS: Table = {"idx": NEUTRAL, "name": USED, "path": USED, "type": USED, "kwargs": NEUTRAL}
_BY_TASK = Noted((), "encode_query() and encode_document() cut texts there; texts of requests are not cut")
TRANSFORMER_KEYS: Table = {
    "max_seq_length": USED,
    "do_lower_case": USED,
    "transformer_task": USED,
    "modality_config": USED,
    "module_output_name": USED,
    "processor_kwargs": USED,
    "tokenizer_args": USED,
    "model_kwargs": USED,
    "model_args": USED,
    "config_kwargs": Only(),
    "config_args": Only(),
    "processing_kwargs": Only(),
    "tokenizer_name_or_path": Only(),
    "query_expansion": Only(),
    "query_length": _BY_TASK,
    "document_length": _BY_TASK,
    "unpad_inputs": NEUTRAL,
}
# Of models with a vector for each token.
_LATE_KEYS: Table = {**TRANSFORMER_KEYS, **dict.fromkeys(("query_length", "document_length", "query_expansion"), USED)}
_LATE_MODEL_KEYS: Table = {
    **MODEL_KEYS,
    **dict.fromkeys(PYLATE_KEYS, USED),
    "truncate_dim": Only(),
    "default_prompt_name": Only(),
    "similarity_fn_name": Only(("MaxSim", "maxsim", "meanmaxsim")),
}
_PROCESSOR_KEYS: Table = {
    "model_max_length": USED,
    "truncation_side": USED,
    "padding_side": NEUTRAL,
    "use_fast": NEUTRAL,
}
_MODEL_KWARGS: Table = {
    "attn_implementation": NEUTRAL,
    "torch_dtype": NEUTRAL,
    "dtype": NEUTRAL,
    "low_cpu_mem_usage": NEUTRAL,
    "use_safetensors": NEUTRAL,
    "add_pooling_layer": NEUTRAL,
}
POOLING_KEYS: Table = {
    "pooling_mode": USED,
    "pooling_mode_cls_token": USED,
    "pooling_mode_max_tokens": USED,
    "pooling_mode_mean_tokens": USED,
    "pooling_mode_mean_sqrt_len_tokens": USED,
    "pooling_mode_weightedmean_tokens": USED,
    "pooling_mode_lasttoken": USED,
    "include_prompt": USED,
    "embedding_dimension": NEUTRAL,
    "word_embedding_dimension": NEUTRAL,
}
DENSE_KEYS: Table = {
    "in_features": NEUTRAL,
    "out_features": USED,
    "bias": USED,
    "activation_function": USED,
    "module_input_name": Only((_POOLED,)),
    "module_output_name": Only((_POOLED,)),
    "use_residual": Only((False,)),
}
NORMALIZE_KEYS: Table = {"module_input_name": Only((_POOLED,)), "module_output_name": Only((_POOLED,))}
_OF_TOKENS: Table = dict.fromkeys(("module_input_name", "module_output_name"), Only(("token_embeddings",)))
TOKEN_DENSE_KEYS: Table = {**DENSE_KEYS, **_OF_TOKENS}
TOKEN_NORMALIZE_KEYS: Table = _OF_TOKENS
# What a Transformer gives to the modules behind it, by what it is part of.
_TASKS = {
    EMBEDDER: ("feature-extraction", "last_hidden_state", "token_embeddings"),
    JUDGE: ("sequence-classification", "logits", "scores"),
}


@dataclass(frozen=True)
class SentenceFiles:
    """What the files say of texts.

    longest: how many tokens a text has at most.
    activation: what makes a score of a logit, as torch names it; None where no file says it.
    """

    longest: int | None
    activation: str | None


def late_class(given: Mapping[str, Any]) -> str | None:
    """Return the class of a model with a vector for each token, by the file MODEL; None for any other.

    Before version 1.3 of PyLate its files did not say it.
    """
    said = given.get("model_type", PYLATE if PYLATE_KEYS[0] in given else None)
    return said if said in LATE else None


def is_judge(directory: Path) -> bool:
    """Whether the files are of a CrossEncoder."""
    return read_object_if_there(directory / MODEL).get("model_type") == JUDGE


def truncated(directory: Path) -> int | None:
    """Return of how many numbers a vector is, where the files say it. Raises CheckpointError for what is no number."""
    value = read_object_if_there(directory / MODEL).get("truncate_dim")
    if value is not None and (type(value) is not int or value < 1):
        raise CheckpointError(f"{directory / MODEL}: truncate_dim is {value!r:.60}, which is no number of dimensions")
    return value


def read_sentence_files(hf: HfCheckpoint, expected: str | None) -> SentenceFiles:
    """Read the files of a model of an expected class, and note what a person has to do with texts. Any may be missing.

    expected: EMBEDDER or JUDGE; None where it does not matter what a text became with theirs.

    Raises:
        CheckpointError: a file is of another class, or says what cannot be followed.
    """
    given = read_object_if_there(hf.directory / MODEL)
    has_modules = (hf.directory / MODULES).exists()
    # Before version 5 no file said the class, and all directories with modules were embedders.
    model_type = given.get("model_type", EMBEDDER if has_modules else expected)
    is_late = has_modules and expected == EMBEDDER and late_class(given) is not None
    if expected is not None and model_type != expected and not is_late:
        raise CheckpointError(
            f"{hf.directory / MODEL}: model_type is {model_type!r:.60}, and config.json is of a {expected}"
        )
    transformer = read_transformer(hf.directory)
    if expected is not None:
        check_task(transformer, expected)
    hf.fields.note(
        *check_keys(MODEL, given, _LATE_MODEL_KEYS if is_late else MODEL_KEYS),
        *check_keys(transformer.place, transformer.given, _LATE_KEYS if is_late else TRANSFORMER_KEYS),
        *(note for module in listed_in(hf.directory) for note in check_keys(MODULES, module, MODULE_KEYS)),
    )
    activation = given.get("activation_fn")
    # Without its modules, sentence-transformers takes the directory for one of transformers.
    counts = isinstance(activation, str) and has_modules
    return SentenceFiles(longest=transformer.longest, activation=activation if counts else None)


def listed_in(directory: Path) -> list[dict[str, Any]]:
    """Return what modules.json lists; nothing without the file. CheckpointError for one that is no such list."""
    path = directory / MODULES
    if not path.exists():
        return []
    listed = read_list(path)
    if not 1 <= len(listed) <= _MOST_MODULES or not all(isinstance(each, dict) for each in listed):
        raise CheckpointError(f"{path} is no list of 1 to {_MOST_MODULES} modules")
    names = [each["name"] for each in listed if "name" in each]
    for name in names:
        # torch refuses others.
        if not isinstance(name, str) or not name or "." in name:
            raise CheckpointError(
                f"{path}: the name {name!r:.60} of a module must be a string, not empty and without a dot"
            )
        if names.count(name) > 1:
            # Theirs has the second one alone, where the first one was.
            raise CheckpointError(f"{path}: the name {name!r:.60} is that of two modules")
    return listed


def modules_of(directory: Path) -> list[tuple[str, Path]]:
    """Return the kind and the folder of each module; none without the file.

    Raises:
        CheckpointError: the file is no list of modules, names a folder elsewhere, or a module that is code.
    """
    return [_module(directory / MODULES, each) for each in listed_in(directory)]


def _module(path: Path, module: dict[str, Any]) -> tuple[str, Path]:
    place, kind = str(module.get("path", "")), str(module.get("type", ""))
    # A folder of this directory, and nothing above or beside it.
    if place and (Path(place).name != place or place.startswith(".")):
        raise CheckpointError(f"{path} names the folder {place!r:.60}, which is not in the same directory")
    if not kind.startswith(_OWN) and kind != _OF_PYLATE:
        raise CheckpointError(f"{path} lists {kind!r:.80}, which is not of sentence-transformers: code is not run")
    return kind.rpartition(".")[2], path.parent / place


@dataclass(frozen=True)
class Transformer:
    """The file of the first module; longest is what follows from it and from the tokenizer's.

    truncation_side: where it lets texts be cut, as the file has it; None where it does not say.
    """

    place: str
    given: Mapping[str, Any]
    longest: int | None
    truncation_side: Any


def read_transformer(directory: Path) -> Transformer:
    """Read the file of the first module. Raises CheckpointError for what cannot be followed."""
    place = next((name for name in TRANSFORMERS if (directory / name).exists()), TRANSFORMERS[0])
    given = read_object_if_there(directory / place)
    _part(place, given, ("model_args", "model_kwargs"), _MODEL_KWARGS)
    of_tokenizer = _part(place, given, ("tokenizer_args", "processor_kwargs"), _PROCESSOR_KEYS)
    said = (of_tokenizer.get("model_max_length"), given.get("max_seq_length"))
    if isinstance(said[1], bool):
        raise CheckpointError(f"{place}: max_seq_length is {said[1]}, which is no number of tokens")
    longest = next((length for each in said if (length := length_of(each)) is not None), None)
    if longest is None:
        longest = length_of(length_said(read_object_if_there(directory / CONFIG)))
    return Transformer(place, given, longest, of_tokenizer.get("truncation_side"))


def with_lower_case(directory: Path, tokenizer: bytes) -> bytes:
    """Return a tokenizers JSON that lower-cases texts first, where the file of the first module says so."""
    if not (directory / MODULES).exists() or not read_transformer(directory).given.get("do_lower_case"):
        return tokenizer
    made = Tokenizer.from_buffer(tokenizer)
    normalizer = made.normalizer
    steps = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, normalizers.Sequence):
        steps = [normalizer[index] for index in range(len(normalizer))]
    if not any(isinstance(step, normalizers.Lowercase) for step in steps):
        made.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])
    return made.to_str().encode()


def _part(place: str, given: Mapping[str, Any], names: tuple[str, str], table: Table) -> dict[str, Any]:
    """Return an object of an older and a newer name. The older counts where both are there."""
    name = next((each for each in names if each in given), names[-1])
    part = given.get(name) or {}
    if not isinstance(part, dict) or check_keys(f"{place}: {name}", part, table):
        raise CheckpointError(f"{place}: {name} is {part!r:.60}, which cannot be followed")
    return part


def check_task(transformer: Transformer, expected: str) -> None:
    """Refuse what another module behind this one would be given, and texts that become messages of a chat."""
    task, output, feature = _TASKS[expected]
    known: dict[str, list[Any]] = {
        "transformer_task": [task],
        "module_output_name": [feature],
        "modality_config": [{"text": {"method": "forward", "method_output_name": output}}],
    }
    for name, values in known.items():
        value = transformer.given.get(name)
        if value is not None and value not in values:
            raise CheckpointError(f"{transformer.place}: {name} is {value!r:.80}, which cannot be followed")


def read_module(hf: HfCheckpoint, folder: Path, table: Table) -> dict[str, Any]:
    """Read a module's config.json, and note what is not followed. Raises CheckpointError as check_keys."""
    path = folder / "config.json"
    given = read_object(path)
    hf.fields.note(*check_keys(f"{folder.name}/config.json", given, table))
    return given
