"""The options of an export: one table for each command that exports, judged before anything takes long."""

import json
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import typer
from safetensors.numpy import save_file
from typer.testing import CliRunner

from weft_export.__main__ import export_app
from weft_export.choices import PRODUCTS
from weft_export.errors import ExportError
from weft_export.flags import check_options, contents_of, takes_options
from weft_export.options import ExportOptions
from weft_export.up.asking import ask_server, least_bytes
from weft_export.up.command import up_app, with_web
from weft_server.config import ServerConfig

# Every flag of the table, with a value that is not its default.
SAID = {
    "precision": "int8",
    "held_out": "held_out.jsonl",
    "mixed_runs": None,
    "no_explain": None,
    "no_score": None,
    "adapters": "4",
    "adapted": "query",
    "max_tokens": "32",
    "max_source_tokens": "16",
    "max_pixels": "4000",
    "golden": "the cat",
    "description": "mine",
    "label_text": "a {}",
    "pooling": "mean",
    "pairs": None,
    "truncate": None,
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder to work in, with a directory of Hugging Face's kind and the files that options name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    save_file(
        {"a": np.zeros((3, 4), np.float16), "b": np.zeros(8, np.float16)}, tmp_path / "bert" / "model.safetensors"
    )
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    (tmp_path / "held_out.jsonl").write_text("{}\n")
    return tmp_path


@pytest.fixture
def made(monkeypatch):
    """What exports are asked for, in the place of exports, and in that of servers."""
    asked = []
    monkeypatch.setattr("os.execv", lambda _, command: asked.append(command[3:]))
    monkeypatch.setattr("weft_export.export.export_checkpoint", lambda *at, **_: asked.append(at))
    return asked


def flags_of(names):
    """A command line that says these options."""
    said = [(f"--{name.replace('_', '-')}", SAID[name]) for name in names]
    return [part for flag, value in said for part in ([flag] if value is None else [flag, value])]


def ran(app, *arguments):
    """Run a command; (exit code, what it says on stderr)."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stderr


def test_up_takes_every_option_of_export(home, made):
    """`weft up` passes on each option of the table as `weft export` does, and all other flags to the server."""
    with pytest.raises(AttributeError):  # the export that is none gives no report
        ran(export_app, "bert", "m/1", *flags_of(SAID))
    code, said = ran(up_app, "bert", "--keep", "kept", "--quiet", *flags_of(SAID), "--slots", "7", "--port", "0")
    (*_, by_export), (*_, by_up), serving = made

    assert (0, "") == (code, "".join(line for line in said.splitlines() if not line.startswith("weft up: bert is")))
    assert by_export == by_up
    assert ("int8", "mean", "query", 32) == (by_up.precision, by_up.pooling, by_up.adapted, by_up.max_tokens)
    given = {field.name for field in fields(ExportOptions) if getattr(by_up, field.name) != field.default}
    assert SAID.keys() == given
    options = {field.name for field in fields(ExportOptions)}
    assert {"paged", "rounded_caches", "labels", "max_block_size"} == options - SAID.keys(), (
        "they contradict others: the next tests say them"
    )
    web = ["--api-port", "8000", "--console"]
    assert ["serve", str(next((home / "kept").glob("*/"))), "--slots", "7", "--port", "0", *web] == [
        serving[0],
        str(home / serving[1]),
        *serving[2:],
    ]
    # Should the server not begin, this process can be ended.
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_each_option_makes_another_bundle(home):
    """Bundles are told apart by each option, and by what is in a file that one names."""
    lines = [[], *(flags_of([name]) for name in SAID if name not in {"adapted", "held_out"})]
    paged = ["--precision", "fp16", "--paged"]
    lines += [paged, [*paged, "--rounded-caches"], ["--labels", "labels.txt"]]
    lines.append(["--precision", "int4", "--max-block-size", "64"])
    lines += [flags_of(["precision", "held_out"]), flags_of(["adapters", "adapted"])]
    keys = {key_of_line(line) for line in lines}
    (home / "labels.txt").write_text("cat\nowl\n")

    assert len(lines) + 1 == len(keys | {key_of_line(["--labels", "labels.txt"])})


def key_of_line(line):
    """What tells bundles apart, of a command line of the table alone."""
    read, app = [], typer.Typer()

    def command(**flags):
        read.append(ExportOptions(**flags))

    app.command()(takes_options(command))
    assert (0, "") == ran(app, *line)
    check_options(Path("bert"), read[0])
    return tuple(contents_of(read[0]).values())


def test_no_option_of_an_export_is_one_of_a_server():
    """So `weft up` knows whose a flag is."""
    assert set() == {field.name for field in fields(ExportOptions)} & ServerConfig.model_fields.keys()


def test_the_table_and_what_it_names_agree():
    """The help names the products of layers."""
    help_text = next(field for field in fields(ExportOptions) if field.name == "adapted").type.__metadata__[0].help
    assert ",".join(PRODUCTS) in help_text


WRONG = {
    "--adapted query": "--adapted says which products take adapters: it needs --adapters RANK",
    "--adapters 2 --adapted q_proj": "'q_proj' is no product of a layer; these are: qkv,",
    "--precision fp16 --adapters 2": "adapters are not for fp16, bf16 and int4-fp16",
    "--precision bf16 --mixed-runs": "mixed runs are not for fp16, bf16 and int4-fp16",
    "--held-out held_out.jsonl": "held-out examples are for int8 and the like",
    "--precision int8 --held-out none.jsonl": "cannot read none.jsonl: No such file",
    "--paged": "--paged is for fp16, bf16 and int4-fp16, on CUDA; at fp32 caches lie in slots",
    "--precision fp16 --rounded-caches": "--rounded-caches is for --paged",
    "--precision int4 --max-block-size 48": "--max-block-size 48: blocks have 32, 64 or 128 weights",
    "--precision nf4 --max-block-size 64": "--max-block-size is for int4 and int8-weights",
    "--precision int8-weights --max-block-size 32": "--max-block-size 32: at int8-weights blocks have 64 or 128",
    "--labels none.txt": "cannot read none.txt: No such file",
    "--labels labels.txt --adapters 2": "adapters are not for labels that stay: leave out --labels, or --adapters",
}
OF_EXPORT = {
    "": "the directory of the new bundle is missing, such as models/en-es/1",
    "new --graphs-only --no-score --force": "--no-score, --force: of no meaning with --graphs-only",
    "m/v1": "m/v1: a bundle's path ends in <name>/<version>",
    "labels.txt": "labels.txt: a bundle's path ends in <name>/<version>",
}
OF_UP = {
    "--prot 1": "No such option: --prot (Possible options: --api-port, --host, --port). Try weft up --help, and",
    "--port 70000 --device cuda": "--port (WEFT_PORT): input should be less than or equal to 65535, not '70000'; "
    "--device (WEFT_DEVICE): cuda needs another ONNX Runtime",
}

# Of a directory whose class does not take an option, or that is of no kind. By the name of a folder, and what is said.
OF_CLASSES = {
    "llama --pairs": "--pairs is not for LlamaForCausalLM",
    "llama --truncate": "--truncate is not for LlamaForCausalLM",
    "llama --label-text a": "--label-text is not for LlamaForCausalLM",
    "whisper --pooling mean": "--pooling is not for WhisperForConditionalGeneration",
    "clip --label-text a": "--label-text must hold {} once, where the label stands, and holds it 0 times",
    "distilbert --max-tokens 65": "--max-tokens 65: the model takes 64 tokens",
    "whisper --golden labels.txt": "--golden: labels.txt is not a recording (WAV), to which this model answers",
    "vit --golden labels.txt": "--golden: labels.txt is not a picture (PNG, JPEG or WebP), to which this model answers",
    "whisper --golden none.wav": "--golden: none.wav is no file; this model answers to a recording (WAV)",
    "vit --golden cat": "--golden: cat is no file; this model answers to a picture",
    "llamma": "the model_type 'llamma' is not supported; the nearest is 'llama'",
    "text.gguf": "text.gguf is not a GGUF file: it does not begin with the letters GGUF",
}

OF_PICTURES = "--image-size 8 --mean 0,0,0 --std 1,1,1 --resample box"
OF_WRAP = {
    "m/1": "--task is missing. Give it, or a directory whose config.json says it",
    "m/1 --task tag --golden a": "--tokenizer is missing: a model of texts needs its tokenizer.json",
    "m/1 --task classify-image --mean 1": "--image-size and --std and --resample: a model of pictures needs it",
    "m/1 --task classify-image --processor a.json --bgr --pad 1": "--processor says what --pad say: leave those out",
    f"m/1 --task classify-image {OF_PICTURES}": "--labels is missing. Give it, or a directory whose",
    f"m/1 --task classify-image --labels labels.txt {OF_PICTURES}": "--golden is missing: a request that the server",
    f"m/1 --task classify-image --labels labels.txt --golden labels.txt {OF_PICTURES}": "--golden: labels.txt is not a"
    " PNG, JPEG or WebP picture",
    f"m/1 --task embed-image {OF_PICTURES}": "--pooling is missing: how the places of an input become one vector",
    f"m/1 --task embed-image --pooling cls {OF_PICTURES} --pad 1": "--pad 1: it must be 3 numbers from 0 to 255",
    f"m/1 --task embed-image --pooling cls {OF_PICTURES} --pad 1,2,3 --resize 9": "--padding is set, and so is",
}


def test_what_is_wrong_with_options_is_said_before_torch_is_loaded(home):
    """Each command that exports refuses in its own words what contradicts itself, and imports no torch for that.

    `weft up` asks the server about the server's flags, before it exports.
    """
    (home / "config.json").write_text('{"family": "gpt"}')
    (home / "other").mkdir()
    (home / "other" / "model.bin").write_bytes(b"")
    lines = [("export", f"bert {line}", said) for line, said in OF_EXPORT.items()]
    lines += [("export", f"bert m/1 {line}", said) for line, said in WRONG.items()]
    lines += [("up", f"bert {line}", said) for line, said in {**OF_UP, **WRONG}.items()]
    (home / "text.gguf").write_text("no")
    for model_type, name in CLASSES.items():
        (home / model_type).mkdir()
        config = {"model_type": model_type, "architectures": [name], "max_position_embeddings": 64}
        (home / model_type / "config.json").write_text(json.dumps(config))
        (home / model_type / "model.safetensors").write_bytes(b"")
    lines += [("up", line, said) for line, said in OF_CLASSES.items()]
    lines += [("wrap", f"bert/model.onnx {line}", said) for line, said in OF_WRAP.items()]
    lines += [(command, f". {more}", "--pooling, --pairs: config.json of . says that itself") for command, more in OURS]
    lines += [(command, f"other {more}", "other is of CTranslate2") for command, more in OURS]
    done = run_all([(command, line) for command, line, _ in lines])

    assert [f"weft {command}: {said}" for command, _, said in lines] == [
        told[: len(f"weft {command}: {said}")] for (command, _, said), told in zip(lines, done, strict=True)
    ]


CLASSES = {
    "llama": "LlamaForCausalLM",
    "whisper": "WhisperForConditionalGeneration",
    "vit": "ViTForImageClassification",
    "clip": "CLIPModel",
    "distilbert": "DistilBertModel",
    "llamma": "LlammaForCausalLM",
}
OURS = (("export", "m/1 --pooling mean --pairs"), ("up", "--pooling mean --pairs"))
# Runs commands in one process, and says what each said, and that none has loaded torch.
_RUNNER = """
import json, sys
from typer.testing import CliRunner
from weft_export.__main__ import export_app
from weft_export.up.command import up_app, with_web
from weft_export.wrapping.command import wrap_app
apps = {"export": export_app, "up": up_app, "wrap": wrap_app}
lines = json.load(sys.stdin)
said = [CliRunner().invoke(apps[command], line.split()).stderr for command, line in lines]
print(json.dumps([said, [name for name in ("torch", "transformers") if name in sys.modules]]))
"""


def run_all(lines):
    """What commands say on stderr. None of them has loaded torch."""
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER], input=json.dumps(lines), capture_output=True, text=True, check=True
    )
    said, loaded = json.loads(done.stdout)
    assert [] == loaded
    return said


def test_a_model_that_cannot_fit_is_refused_before_it_is_exported(home):
    """Weights larger than memory are no model that this machine serves, and a second tells so."""
    save_file({"a": np.zeros((3, 4), np.float16)}, home / "bert" / "model-00002-of-00002.safetensors")
    assert 32 * 4 == least_bytes(home / "bert", "fp32")
    assert 32 // 2 == least_bytes(home / "bert", "int4")
    with pytest.raises(ExportError, match=r"the model's weights take 1e\+06 GB; .* GB are free; another precision"):
        ask_server([], 10**15)


def test_a_server_that_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch):
    """Who installed the exporter alone is told what to install, in one line."""
    (tmp_path / "structlog.py").write_text("raise ModuleNotFoundError('No module named structlog', name='structlog')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asks = (
        "from weft_export.up.asking import ask_server as ask\ntry: ask([], 0)\nexcept Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert "structlog is not installed: pip install 'weft-serving[server]' (or [gpu])\n" == done.stdout


def test_a_pickle_has_at_most_as_many_numbers_as_a_quarter_of_its_bytes(home):
    """Weights without a header are not read: what is said of them is never too much."""
    (home / "bert" / "model.safetensors").rename(home / "bert" / "pytorch_model.bin")

    assert (home / "bert" / "pytorch_model.bin").stat().st_size // 4 == least_bytes(home / "bert", "int8")


@pytest.mark.parametrize(
    ("flags", "variables", "added"),
    [
        ([], {}, ["--api-port", "8000", "--console"]),
        (["--api-port=9"], {}, ["--console"]),
        (["--api-port", "9", "--no-console"], {}, []),
        (["--console"], {"WEFT_API_PORT": "9", "API_PORT": "1", "CONSOLE": "1"}, []),
        ([], {"weft_api_port": "9", "Weft_Console": "false"}, []),
        ([], {"WEFT_CONSOLE": "false", "CONSOLE": "1", "API_PORT": "1"}, ["--api-port", "8000"]),
    ],
)
def test_a_tried_model_has_a_page_unless_something_says_otherwise(monkeypatch, flags, variables, added):
    """A flag or a variable of the server's. A variable of others says nothing."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert [*flags, *added] == with_web(flags)
