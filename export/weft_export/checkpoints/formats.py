"""What a path holds that is no checkpoint, known by its files, and the next command. Quick: no torch, no weights."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from weft_export.checkpoints.files import check_directory, check_regular, read_file
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import CONFIG_FILE, MANIFEST_FILE, VERSION

ADAPTER_CONFIG = "adapter_config.json"
TOKEN_VECTORS, TOKEN_WEIGHTS = "colbert_linear.pt", "sparse_linear.pt"
"""What FlagEmbedding saves beside the body of a BGE-M3."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""ORG/NAME of a model on Hugging Face's hub."""
_GGUF, _PTH = ".gguf", ".pth"
GGUF_MAGIC = b"GGUF"
_INNER = [f"{folder}/{name}" for name in (CONFIG_FILE, ADAPTER_CONFIG) for folder in ("*", "snapshots/*")]
_ORIGINAL = "give the directory that it was made from: its config.json has model_type"


class _Format(NamedTuple):
    """A format of other tools, or another one of ours.

    advice: what it is. {0} is the path. {q0} is the path as a shell takes it, {q1} the folder above, {q2} that above.
    holds: whether a folder is of it, by the names in it, and what its config.json says.
    suffix: whether a file is of it. Empty: files are not.
    """

    advice: str
    holds: Callable[[Path, frozenset[str], dict[str, Any]], bool]
    suffix: str = ""


def check_format(path: Path) -> None:
    """Raise CheckpointError unless a path may be a checkpoint: it says what it is, and what to do.

    A directory that has a config.json of ours or of transformers, and weights, may be one. What else is wrong with it,
    the reading of it says.
    """
    if path.is_file():
        _check_file(path)
        return
    if not path.exists() and HUB_NAME.fullmatch(str(path)):
        raise CheckpointError(
            f"{path} does not exist. If it is a model of the hub, {fetching(str(path))}. `weft up {path}`"
            " fetches and serves it, if its weights are safetensors"
        )
    check_directory(path)
    try:
        names = frozenset(each.name for each in path.iterdir())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    config = read_config(path)
    # Such a directory may hold other formats beside: exports to ONNX, TensorFlow's weights.
    if "family" in config or ("model_type" in config and any(map(_is_weights, names))):
        return
    if ADAPTER_CONFIG in names:
        from weft_export.checkpoints.adapter_folder import next_commands  # noqa: PLC0415 - late: for such a folder

        raise CheckpointError(next_commands(path, _object(path / ADAPTER_CONFIG), _is_adaptable))
    for each in _FORMATS:
        if each.holds(path, names, config):
            raise CheckpointError(_advice(each, path))
    if CONFIG_FILE not in names:
        what = _inner(path) or "a checkpoint is a directory with it and model.safetensors"
        raise CheckpointError(f"{path} has no {CONFIG_FILE}; {what}")
    if "model_type" not in config:
        _object(path / CONFIG_FILE)
        raise CheckpointError(
            f"{path / CONFIG_FILE} has no model_type, which says what kind of model of transformers it is. If you know"
            ' it, write it there, such as "model_type": "bert"'
        )


def _advice(each: _Format, path: Path) -> str:
    """Return what a format is, with the commands for a path."""
    quoted = {f"q{place}": shlex.quote(str(folder)) for place, folder in enumerate((path, *_above(path)))}
    return each.advice.format(str(path), **quoted)


def _check_file(path: Path) -> None:
    """Raise CheckpointError for a file, but of GGUF and of RWKV."""
    check_regular(path)
    if is_pth(path):
        return
    if is_gguf(path):
        with path.open("rb") as file:
            if file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
                raise CheckpointError(f"{path} is not a GGUF file: it does not begin with the letters GGUF")
        return
    for each in _FORMATS:
        if each.suffix and path.name.endswith(each.suffix):
            raise CheckpointError(_advice(each, path))
    if path.suffix in {".safetensors", ".bin", ".json"}:
        raise CheckpointError(f"{path} is a file; give its directory, {path.parent}")
    check_directory(path)


MODULES = "modules.json"
"""The file of sentence-transformers that says what stands behind a body."""
QUANTISED = ("quantization_config", "compression_config")
"""Keys of config.json that say how weights are quantised: the usual one, and an older one."""


def fetching(name: str) -> str:
    """Return how a model of the hub is fetched by hand, pickles and all, and what is given then."""
    folder = name.rpartition("/")[2]
    return f"`hf download {name} --local-dir {folder}` fetches it into the folder {folder}: give that"


def is_gguf(path: Path) -> bool:
    """Whether a path is that of a GGUF file."""
    return path.suffix == _GGUF and not path.is_dir()


WORLD_FILE = "rwkv_vocab_v20230424.txt"
"""The vocabulary that lies beside a .pth of RWKV."""
RWKV_CONFIG = {"model_type": "rwkv7", "architectures": ["RWKV7ForCausalLM"]}
"""What config.json says of the one kind of model that is read from a .pth."""


def is_pth(path: Path) -> bool:
    """Whether a path is that of a file that RWKV-LM saves, by its ending."""
    return path.suffix == _PTH and not path.is_dir()


def is_one_file(path: Path) -> bool:
    """Whether a path is that of a checkpoint in one file."""
    return is_gguf(path) or is_pth(path)


def is_foreign(directory: Path) -> bool:
    """Whether config.json of a directory is of Hugging Face's kind. What cannot be read is not."""
    config = read_config(directory)
    return "model_type" in config and "family" not in config


def check_adaptable(path: Path) -> None:
    """Raise CheckpointError where no adapter can be added to the weights of a checkpoint.

    Those of a checkpoint in one file have names of their own, which no adapter of PEFT has.
    """
    config = {} if is_one_file(path) else read_config(path)
    key = next((key for key in QUANTISED if config.get(key) is not None), None)
    if is_one_file(path) or key is not None:
        file = "a GGUF file" if is_gguf(path) else f"a {_PTH} file"
        why = file if key is None else f"weights that are quantised already, and {CONFIG_FILE} has {key}"
        raise CheckpointError(
            f"{path}: adapters are not for {why}. Take the checkpoint that it was made of; --precision rounds its"
            " weights beside adapters"
        )


def _is_adaptable(path: Path) -> bool:
    try:
        check_adaptable(path)
    except CheckpointError:
        return False
    return True


def read_config(directory: Path) -> dict[str, Any]:
    """Return config.json. What cannot be read says nothing here."""
    try:
        return _object(directory / CONFIG_FILE)
    except CheckpointError:
        return {}


def _object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object. For any other file, CheckpointError says what is wrong."""
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value


def _inner(path: Path) -> str:
    """Say which folder below has what this one lacks: a Trainer writes checkpoint-500, and a hub's cache snapshots."""
    for pattern in _INNER:
        # The longer name is the later one: checkpoint-500 goes before checkpoint-1500.
        found = sorted((each.parent for each in path.glob(pattern)), key=lambda each: (len(each.name), each.name))
        if found:
            return f"{found[-1]} has one: give {'that folder' if len(found) == 1 else 'it, or another one beside it'}"
    return ""


def _is_weights(name: str) -> bool:
    """Whether a file may have a model's weights, and not an adapter's alone."""
    is_of_torch = name.startswith("pytorch_model") and name.endswith((".bin", ".json"))
    return is_of_torch or (name.endswith(".safetensors") and not name.startswith("adapter_model"))


def _versions(path: Path, place: str) -> Iterator[Path]:
    """Yield what may be a bundle at a place below a path: MODEL/VERSION, or VERSION."""
    yield from (each.parent for each in path.glob(f"{place}/{MANIFEST_FILE}") if VERSION.fullmatch(each.parent.name))


def _above(path: Path) -> tuple[Path, Path]:
    """Return the folder above a path, and the one above that, as somebody may type them."""
    home = path if {"..", ""}.isdisjoint((path.name, path.parent.name)) else path.absolute().resolve()
    return home.parent, home.parent.parent


def _ends(*suffixes: str) -> Callable[[Path, frozenset[str], dict[str, Any]], bool]:
    return lambda _, names, __: any(name.endswith(suffixes) for name in names)


_TENSORFLOW = (".h5", ".ckpt.index", ".msgpack", ".tflite", "saved_model.pb")
_FORMATS = (
    _Format(
        "{0} is a bundle of Weft already: `weft serve {q2}` serves it, and what else is in that repository",
        lambda _, names, __: MANIFEST_FILE in names,
    ),
    _Format(
        "{0} is a model repository: its bundles are exported already. `weft serve {q0}` serves them",
        lambda path, _, __: any(_versions(path, "*/*")),
    ),
    _Format(
        "{0} is a model of a repository: its bundles are exported already. `weft serve {q1}` serves it, and what else"
        " is there",
        lambda path, _, __: any(_versions(path, "*")),
    ),
    _Format(
        "{} is of CTranslate2, whose weights have names and forms of their own: " + _ORIGINAL,
        lambda _, names, config: "model.bin" in names and "model_type" not in config,
    ),
    _Format("{0} has files of GGUF, each a model or a part of one: give the file, {0}/NAME.gguf", _ends(_GGUF)),
    _Format(
        "{0} has files that torch.save wrote. If one is an RWKV 7, give the file, {0}/NAME.pth: its vocabulary "
        + WORLD_FILE
        + " must lie beside it",
        lambda _, names, config: "model_type" not in config and any(name.endswith(_PTH) for name in names),
    ),
    _Format(
        "{0} is of an old sentence-transformers, with the body in a folder. A newer one writes it as it is read:"
        " SentenceTransformer({0!r}).save_pretrained(...)",
        lambda _, names, __: MODULES in names and CONFIG_FILE not in names,
    ),
    _Format(
        "{} is of diffusers: such models make pictures, which is no task of Weft",
        lambda _, names, __: "model_index.json" in names,
    ),
    _Format(
        "{0} is of ONNX: `weft wrap {q0} BUNDLE` makes a bundle of a file; `weft wrap --help` says what it takes",
        lambda path, names, _: _ends(".onnx")(path, names, {}) or any((path / "onnx").glob("*.onnx")),
        ".onnx",
    ),
    _Format(
        "{} is of TensorFlow or Flax, which is not read. transformers before version 5 makes safetensors of it:"
        " from_pretrained(..., from_tf=True) or from_flax=True, and then save_pretrained(...)",
        _ends(*_TENSORFLOW),
        ".h5",
    ),
)
