"""Weights under other names: those of a model in memory, and those of older files, make the same model."""

import re

import pytest
import torch
import transformers
from adapted import adapted
from cell_kinds import CELLS, made_cells
from hf_models import converted
from prompted_kinds import PROMPTED, made_prompted
from query_kinds import BLIP2, made_queries
from question_kinds import ASKING, FLORENCE2, made_asking
from safetensors.torch import load_file, save_file
from sight_kinds import SEEING, SPLITTING, TILING, made_seeing
from stretch_kinds import STRETCHES, made_stretches

from weft_export.adapters.merging import write_merged
from weft_export.adapters.peft import read_adapter
from weft_export.errors import CheckpointError

WEIGHTS = "model.safetensors"
ROWS = [SEEING[0], TILING[0], *SPLITTING, *CELLS, *STRETCHES[:2], BLIP2, *ASKING, *PROMPTED]
# Kinds whose files are called as transformers calls them in memory, in version 4 too.
ALIKE = (
    "idefics3-llama",
    "smolvlm-llama",
    "qwen3-vl",
    "qwen3-vl-moe",
    "blip-2-opt",
    "blip-2-t5",
    "florence2",
    "git",
    "donut",
)


def made(kind, directory):
    """Write a random model of a kind, and return it."""
    if kind in CELLS:
        return made_cells(kind, 0, directory)[0]
    for kinds, make in ((ASKING, made_asking), (PROMPTED, made_prompted)):
        if kind in kinds:
            return make(kind, 0, directory)[0]
    if kind in STRETCHES:
        return made_stretches(kind, 0, directory)[0]
    return made_queries(0, directory)[0] if kind is BLIP2 else made_seeing(kind, 0, directory)[0]


def weights_of(directory):
    """Our weights, by name."""
    return converted(directory).model.state_dict()


def in_memory(model):
    """A model's weights as its class calls them: what torch.save, FSDP and other trainers write of it."""
    first = {tensor.data_ptr(): name for name, tensor in reversed(model.state_dict().items())}
    return {name: model.state_dict()[name].clone() for name in first.values()}


def of_version_4(stored):
    """What version 4 wrote: a tower had its prefix, and so it is in released files."""
    return {re.sub(r"^vision_tower\.", "vision_tower.vision_model.", name): each for name, each in stored.items()}


def in_memory_of_version_4(stored):
    """What a model was called in memory from 4.52 on."""
    return {
        re.sub(r"^model\.vision_tower\.", "model.vision_tower.vision_model.", name): each
        for name, each in stored.items()
    }


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.name)
def test_each_spelling_that_transformers_reads_makes_the_same_weights(kind, tmp_path):
    """What it saves, what it has in memory, and both with the prefixes of version 4. It reads the second itself."""
    model = made(kind, tmp_path)
    saved, own = load_file(tmp_path / WEIGHTS), in_memory(model)
    expected = weights_of(tmp_path)
    # A DaViT was never anything but a tower.
    spelled = [own] if kind is FLORENCE2 else [own, of_version_4(saved), in_memory_of_version_4(own)]
    assert (kind.name in ALIKE) == (saved.keys() <= model.state_dict().keys())
    for stored in spelled:
        save_file(stored, tmp_path / WEIGHTS)
        found = weights_of(tmp_path)
        assert expected.keys() == found.keys()
        assert all(torch.equal(each, found[name]) for name, each in expected.items())
    save_file(own, tmp_path / WEIGHTS)
    read = getattr(transformers, kind.architecture).from_pretrained(tmp_path, dtype=torch.float32).state_dict()
    assert all(torch.equal(each, read[name]) for name, each in model.state_dict().items())


@pytest.mark.parametrize("kind", [SEEING[0], CELLS[0], BLIP2], ids=lambda kind: kind.name)
def test_an_unknown_spelling_is_refused_with_the_names_that_are_there(kind, tmp_path):
    """The sentence says what is missing, and how the file calls what it has."""
    made(kind, tmp_path)
    stored = load_file(tmp_path / WEIGHTS)
    save_file({f"module.{name}": each for name, each in stored.items()}, tmp_path / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"weights are missing: .*; \d+ tensors .* are not used: module\."):
        weights_of(tmp_path)


def test_a_weight_that_is_there_in_two_spellings_is_refused(tmp_path):
    """One of them would be read, and the other one not."""
    model = made(SEEING[0], tmp_path)
    save_file(load_file(tmp_path / WEIGHTS) | in_memory(model), tmp_path / WEIGHTS)
    with pytest.raises(CheckpointError, match="are two names of one weight"):
        weights_of(tmp_path)


@pytest.mark.parametrize("kind", [SEEING[0], CELLS[0]], ids=lambda kind: kind.name)
def test_an_adapter_fits_a_base_in_any_spelling(kind, tmp_path):
    """PEFT names the modules of a model in memory; with version 4.51 and before, these were those of its files."""
    model = made(kind, tmp_path / "base")
    saved, own = load_file(tmp_path / "base" / WEIGHTS), in_memory(model)
    adapted(model, tmp_path / "newer", target_modules=["q_proj", "up_proj"], exclude_modules=".*(vision|visual).*")
    path = tmp_path / "newer" / "adapter_model.safetensors"
    (tmp_path / "older").mkdir()
    older = {"language_model.model.": "language_model.", "model.": "language_model."}
    put = next(each for each in older if any(name.startswith(f"{each}layers") for name in saved))
    stored = {
        name.replace("base_model.model.model.language_model.", f"base_model.model.{put}"): each
        for name, each in load_file(path).items()
    }
    save_file(stored, tmp_path / "older" / path.name)
    (tmp_path / "older" / "adapter_config.json").write_bytes((tmp_path / "newer" / "adapter_config.json").read_bytes())
    found = []
    for stored in (saved, own):
        save_file(stored, tmp_path / "base" / WEIGHTS)
        for adapter in ("newer", "older"):
            merged = tmp_path / f"merged-{len(found)}"
            merged.mkdir()
            write_merged(tmp_path / "base", read_adapter(tmp_path / adapter), merged)
            found.append(weights_of(merged))
    assert all(torch.equal(each, other[name]) for other in found for name, each in found[0].items())
    assert any(not torch.equal(each, found[0][name]) for name, each in weights_of(tmp_path / "base").items())
