"""docs/new-family.md, done as it is written, in a copy of the exporter that does not know the kind that it adds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

import weft
from process import ServerProcess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/new-family.md").read_text()
MAKE, CONVERTER, ROW, DRAW = re.findall(r"```(?:python|text)\n(.*?)```", PAGE, re.DOTALL)
SAID = re.findall(r"^\$ weft export (.*)\n(weft export: .*)$", PAGE, re.MULTILINE)
PROMPT = re.findall(r'^\$ weft generate "(.*)" --max-new-tokens (\d+)$', PAGE, re.MULTILINE)


def named(block):
    """The path that a block begins with, and the rest of it."""
    head, _, rest = block.partition("\n")
    return head.removeprefix("# "), rest


def test_the_page_shows_what_stands_in_the_files():
    """The converter whole, and the rows that it has in two tables."""
    path, text = named(CONVERTER)
    assert (ROOT / path).read_text() == text
    (registry,) = re.findall(r"in `([^`]*/registry\.py)`", PAGE)
    assert ROW in (ROOT / registry).read_text()
    path, text = named(DRAW)
    assert text in (ROOT / path).read_text()
    for row in re.findall(r"`(Kind.*)`", PAGE):
        assert f"    {row},\n" in (ROOT / path).read_text()
    ((path, row),) = re.findall(r"`([^`]*kinds\.py)` says.*?here it is `(.*?)`", PAGE, re.DOTALL)
    assert f"    {row},\n" in (ROOT / path).read_text()


@pytest.mark.e2e
@pytest.mark.long
def test_the_page_leads_to_an_answer(tmp_path):
    """Without its file and its row the kind is refused, as shown. With both a model answers as transformers does."""
    shutil.copytree(ROOT / "export" / "weft_export", tmp_path / "weft_export")
    path, text = named(CONVERTER)
    converter, registry = tmp_path / Path(path).relative_to("export"), tmp_path / "weft_export/converters/registry.py"
    converter.unlink()
    rows = registry.read_text()
    registry.write_text(rows.replace(ROW, ""))
    (tmp_path / "make_jais.py").write_text(MAKE)
    subprocess.run([sys.executable, "make_jais.py"], cwd=tmp_path, check=True, capture_output=True)
    ((typed, refusal),) = SAID
    assert refusal in exported(tmp_path, typed).stderr

    converter.write_text(text)
    registry.write_text(rows)
    assert 0 == exported(tmp_path, typed).returncode
    ((prompt, length),) = PROMPT
    with ServerProcess(tmp_path / "models") as server:
        server.wait_for("ready")
        with weft.Client(server.target) as client:
            said = client.generate(prompt, decoding=weft.Decoding(max_new_tokens=int(length)))

    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "jais").eval()
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "jais")(prompt, return_tensors="pt").input_ids
    with torch.inference_mode():
        wanted = model.generate(ids, do_sample=False, max_new_tokens=int(length))[0, ids.shape[1] :]
    assert wanted.tolist()[: len(said.token_ids)] == list(said.token_ids)
    assert len(said.token_ids) > 3


def exported(folder, typed):
    """What came of a command line of the page, by the exporter of a folder."""
    command = [Path(sys.executable).with_name("weft"), "export", *typed.split()]
    found = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, check=False, cwd=folder, env=found, capture_output=True, text=True)
