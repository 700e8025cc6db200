"""What a config may ask for: every number has a bound, and nothing of its size is made before it is held to it."""

import dataclasses
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from samples import sample
from tiny import CHECKPOINTS, save_tiny

from weft_export.checkpoints.directory import MAX_TABLE_NUMBERS, load_checkpoint
from weft_export.errors import CheckpointError
from weft_export.families.registry import FAMILIES
from weft_export.families.sizes import LIMITS, MAX_STAGES, PER_LAYER, RANGES, require_sizes
from weft_proto.bundle_rules import MAX_READ_BYTES

ONE_OF_EACH = {sample(name).family: name for name in reversed(CHECKPOINTS)}
# Their first one is 0.
TOKENS = ("separator_id", "filled_with")
HUGE = (10**9, 2**63, 1e30)


def numbers_of(config):
    """Return the fields of a config that are a whole number, or several."""
    whole = (int, int | None, tuple[int, ...])
    return [field.name for field in dataclasses.fields(config) if field.type in whole]


def edit_config(directory, change):
    """Rewrite config.json through a function."""
    config = json.loads((directory / "config.json").read_text())
    change(config)
    (directory / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_of_a_family_has_a_bound(family):
    """Each whole number of each config is in the one table of limits, and each other number in that of ranges."""
    config = FAMILIES[family].config

    assert set(numbers_of(config)) <= set(LIMITS)
    assert {field.name for field in dataclasses.fields(config) if field.type is float} <= set(RANGES)


def test_a_token_may_be_the_first_of_its_vocabulary():
    """Any other number is at least 1."""
    config = dataclasses.make_dataclass("Config", [(name, int, 1) for name in ("filled_with", "d_model")])
    require_sizes(config(filled_with=0))
    with pytest.raises(ValueError, match=r"model\.d_model must be a whole number in \[1, 65536\], not 0"):
        require_sizes(config(d_model=0))


def test_the_manual_states_every_bound():
    """The table of README.md has each field with its limit, and no other; the other bounds stand below it."""
    manual = (Path(__file__).parents[2] / "export" / "README.md").read_text()
    section = manual.partition("### Limits\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`.+) \| (\d+) \|$", section, re.MULTILINE)
    stated = {name: int(limit) for names, limit in rows for name in re.findall(r"`(\w+)`", names)}

    assert LIMITS == stated
    assert f"| how many `widths`, `convolution_widths`, `depths`, `unweighted` | {MAX_STAGES} |" in section
    section = " ".join(section.split())
    assert f"at most {MAX_TABLE_NUMBERS} numbers" in section
    assert f"at most {MAX_READ_BYTES} bytes" in section
    for name, (low, high) in RANGES.items():
        assert re.search(rf"`{name}` (is )?in \[{low:g}, {re.escape(f'{high:g}')}\)", section), name


# A gigabyte beyond what torch has mapped by itself is enough for every tiny model, and for nothing that is huge.
_LOAD_ALL = """
    import json, resource, sys
    from pathlib import Path

    import torch

    from weft_export.checkpoints.directory import MAX_TABLE_NUMBERS, load_checkpoint
    from weft_export.errors import CheckpointError

    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    for directory in sorted(Path(sys.argv[1]).iterdir()):
        try:
            load_checkpoint(directory)
        except CheckpointError as error:
            print(json.dumps([directory.name, str(error)]))
        except BaseException as error:
            print(json.dumps([directory.name, f"{type(error).__name__}: {error}"]))
        else:
            print(json.dumps([directory.name, "loaded"]))
"""


def load_all(directory):
    """Load each checkpoint in a directory, with a gigabyte and a minute for all of them: what was said of each."""
    script = textwrap.dedent(_LOAD_ALL)
    ran = subprocess.run([sys.executable, "-c", script, str(directory)], capture_output=True, text=True, check=False)
    assert (0, "") == (ran.returncode, ran.stderr)
    return dict(json.loads(line) for line in ran.stdout.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_huge_numbers_are_refused_before_anything_is_made(tmp_path):
    """Each number of each family, when huge, is refused with its name, its value and the limit; in no memory."""
    expected = {}
    for family, tiny in ONE_OF_EACH.items():
        source = save_tiny(tiny, tmp_path / family)
        sizes = json.loads((source / "config.json").read_text())["model"]
        for name in numbers_of(FAMILIES[family].config):
            for index, value in enumerate(HUGE):
                directory = tmp_path / "all" / f"{family}.{name}.{index}"
                directory.mkdir(parents=True)
                for file in source.iterdir():
                    (directory / file.name).hardlink_to(file)
                (directory / "config.json").unlink()
                config = json.loads((source / "config.json").read_text())
                several = isinstance(sizes[name], list)
                config["model"][name] = [value, *sizes[name][1:]] if several else value
                (directory / "config.json").write_text(json.dumps(config))
                expected[directory.name] = (f"model.{name}{'[0]' if several else ''}", value)
    said = load_all(tmp_path / "all")

    assert expected.keys() == said.keys()
    for directory, (field, value) in expected.items():
        name = field.removeprefix("model.").removesuffix("[0]")
        if name in PER_LAYER:
            assert f"model.{name} must be empty, or have" in said[directory]
        else:
            least = 0 if name in TOKENS else 1
            assert f"{field} must be a whole number in [{least}, {LIMITS[name]}], not {value!r}" in said[directory]


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_the_largest_numbers_are_held_to_the_weights(tmp_path):
    """A number at its limit is allowed, and refused by what lies in the file, or by a bound on all tables together."""
    names = []
    for family, tiny in ONE_OF_EACH.items():
        source = save_tiny(tiny, tmp_path / family)
        for name in numbers_of(FAMILIES[family].config):
            directory = tmp_path / "all" / f"{family}.{name}"
            directory.mkdir(parents=True)
            for file in source.iterdir():
                (directory / file.name).hardlink_to(file)
            config = json.loads((source / "config.json").read_text())
            (directory / "config.json").unlink()
            several = isinstance(config["model"][name], list)
            config["model"][name] = [LIMITS[name]] * len(config["model"][name]) if several else LIMITS[name]
            # What is said of the text goes along, so that nothing but the size itself can be refused.
            for key, size in (("max_source_tokens", "max_source_tokens"), ("max_total_tokens", "max_target_tokens")):
                if name in (size, "max_tokens") and key in config.get("text", {}):
                    config["text"][key] = LIMITS[name]
            (directory / "config.json").write_text(json.dumps(config))
            names.append(directory.name)
    said = load_all(tmp_path / "all")

    assert sorted(names) == sorted(said)
    for name, answer in said.items():
        assert not answer.startswith(("MemoryError", "RuntimeError", "OverflowError")), (name, answer)


def test_layers_are_held_to_the_file_before_one_is_built(tmp_path, monkeypatch):
    """A file of forty tensors has no five hundred layers; it is not even tried."""
    directory = save_tiny("tiny-gpt", tmp_path)
    edit_config(directory, lambda config: config["model"].update(num_layers=500))
    monkeypatch.setattr(torch, "device", None)  # nothing is made, on meta neither

    with pytest.raises(CheckpointError, match=r"model\.num_layers is 500, but .* has \d+ tensors in all"):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("name", "size", "text"),
    [
        ("tiny-translate", "max_source_tokens", "max_source_tokens"),
        ("tiny-t5", "max_target_tokens", "max_total_tokens"),
        ("tiny-generate", "max_tokens", "max_total_tokens"),
    ],
)
def test_tables_are_bounded(name, size, text, tmp_path, monkeypatch):
    """Tables of positions are no weights: what they hold in all has a bound of its own."""
    directory = save_tiny(name, tmp_path)
    edit_config(directory, lambda config: (config["model"].update({size: 8192}), config["text"].update({text: 8192})))
    monkeypatch.setattr("weft_export.checkpoints.directory.MAX_TABLE_NUMBERS", 2**16)

    with pytest.raises(CheckpointError, match=r"tables of positions would hold \d+ numbers, 65536 are allowed"):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("name", "size", "value", "complaint"),
    [
        ("tiny-swin", "depths", [1] * (MAX_STAGES + 1), r"model.depths must have between 1 and 12 numbers, not 13"),
        ("tiny-swin", "depths", [], r"model.depths must have between 1 and 12 numbers, not 0"),
        ("tiny-swin", "depths", 3, r"model.depths must be a list of whole numbers, not 3"),
        ("tiny-swin", "depths", "22", r"model.depths must be a list of whole numbers, not '22'"),
        ("tiny-gpt", "num_layers", True, r"model.num_layers must be a whole number in \[1, 1024\], not True"),
        ("tiny-gpt", "dropout", "no", r"model.dropout must be a number in \[0, 1\), not 'no'"),
        ("tiny-gpt", "dropout", 1, r"model.dropout must be a number in \[0, 1\), not 1"),
        ("tiny-gpt", "norm_eps", float("inf"), r"model.norm_eps must be a number in"),
        ("tiny-gpt", "norm_eps", float("nan"), r"model.norm_eps must be a number in"),
        ("tiny-gpt", "norm_eps", 1e-300, r"model.norm_eps must be a number in"),
        ("tiny-generate", "rope_theta", 1, r"model.rope_theta must be a number in"),
        ("tiny-rnn", "cell", "vanilla", r"model.cell must be one of rnn, gru, lstm, not 'vanilla'"),
        ("tiny-rnn", "cell", [], r"model.cell must be one of rnn, gru, lstm, not \[\]"),
        ("tiny-rnn", "reverse_source", 1, r"model.reverse_source must be true or false, not 1"),
        ("tiny-gpt", "hidden_size", 4, r"model.hidden_size is unknown; the sizes of gpt are vocab_size, max_tokens, "),
        ("tiny-gpt", "num_layer", 4, r"model.num_layer is unknown; did you mean num_layers\?"),
        ("tiny-gpt", "d_modle", 4, r"model.d_modle is unknown; did you mean d_model\?"),
    ],
)
def test_a_size_that_is_none_is_named(name, size, value, complaint, tmp_path):
    """One sentence in the config's own words: the field, the value, and what it may be."""
    directory = save_tiny(name, tmp_path)
    edit_config(directory, lambda config: config["model"].update({size: value}))

    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(directory)


def test_a_missing_size_is_named(tmp_path):
    """All that are missing, in the config's words."""
    directory = save_tiny("tiny-gpt", tmp_path)
    edit_config(directory, lambda config: (config["model"].pop("d_ff"), config["model"].pop("num_heads")))

    with pytest.raises(CheckpointError, match=r"model.num_heads and model.d_ff are missing"):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("name", "size", "value", "complaint"),
    [
        ("tiny-gpt", "d_model", 36, r"a head has d_model / num_heads = 36 / 2 numbers; that must be a multiple of 8"),
        ("tiny-translate", "d_model", 24, r"= 24 / 2 numbers; that must be a multiple of 8"),
        ("tiny-generate", "d_model", 96, r"= 96 / 4 numbers; that must be a multiple of 16"),
        ("tiny-t5", "head_dim", 12, r"a head has head_dim = 12 numbers; that must be a multiple of 8"),
    ],
)
def test_what_the_attention_operator_wants_is_said_of_the_head(name, size, value, complaint, tmp_path):
    """ONNX Runtime asks for heads of a multiple of 8 numbers, of 16 where it rotates them."""
    directory = save_tiny(name, tmp_path)
    edit_config(directory, lambda config: config["model"].update({size: value}))

    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(directory)
