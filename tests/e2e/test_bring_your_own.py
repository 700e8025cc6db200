"""docs/bring-your-own.md, done as it is written: a ViT of ours, somebody's own GPT, and their answers."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_parts import byte_tokenizer
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/bring-your-own.md").read_text()
TRAIN, RENAME, NAMES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# Each command, without its comment, and the line that the page shows under it.
COMMANDS = re.findall(r"^\$ (.*?)(?: +#.*)?\n((?!\$|```).*\n)?", PAGE, re.MULTILINE)
VOCAB, LONGEST, WIDTH, HEADS = 300, 64, 32, 4


class Attention(nn.Module):
    """Causal self-attention, as somebody wrote it."""

    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Mix x [batch, seq, width] over what came before."""
        parts = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, dim=2))
        return self.c_proj(functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Two layers with a GELU between."""

    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """Map each position of x by itself."""
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """A layer, normed before each half."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2, self.attn, self.mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(), Mlp()

    def forward(self, x):
        """Add both halves to x."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class MyGpt(nn.Module):
    """A GPT whose modules are called as in nanoGPT; none of them is ours."""

    def __init__(self):
        super().__init__()
        parts = {"wte": nn.Embedding(VOCAB, WIDTH), "wpe": nn.Embedding(LONGEST, WIDTH)}
        parts |= {"h": nn.ModuleList(Block() for _ in range(2)), "ln_f": nn.LayerNorm(WIDTH)}
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        """Return logits [batch, seq, vocab] for ids [batch, seq]."""
        x = self.transformer["wte"](ids) + self.transformer["wpe"](torch.arange(ids.shape[1]))
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


@torch.inference_mode()
def continued(model, tokenizer, prompt, count):
    """What somebody's own loop writes after a prompt, greedily; token 0 ends it."""
    ids = tokenizer.encode(prompt).ids
    given = len(ids)
    while len(ids) - given < count and ids[-1] != 0:
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return [token for token in ids[given:] if token != 0]


def random_gpt():
    """A model of weights large enough that its tokens differ."""
    torch.manual_seed(3)
    model = MyGpt().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
    return model


def run(directory, command, target=""):
    """Run a command as a reader of the page does; return what it prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "WEFT_TARGET": target}
    done = subprocess.run(
        shlex.split(command), cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_models_of_ones_own_are_served(tmp_path):
    """The page's scripts and commands, as they stand there: the ViT reads the digit, the GPT writes as its own loop."""
    (tmp_path / "export").symlink_to(ROOT / "export")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "rename.py").write_text(RENAME)
    model = random_gpt()
    torch.save(model.state_dict(), tmp_path / "mine.pt")
    (tmp_path / "tokenizer.json").write_bytes(byte_tokenizer())
    *makes, (serve, _), (classify, digit), (generate, _) = COMMANDS

    assert ["python", "python", "weft", "weft"] == [command.split()[0] for command, _ in makes]
    for command, _ in makes:
        run(tmp_path, command)
    assert "weft serve models" == serve
    with ServerProcess(tmp_path / "models") as server:
        server.wait_for("ready", timeout=120)
        read = run(tmp_path, classify, server.target)
        written = run(tmp_path, generate, server.target)

    assert "7\n" == digit == read
    tokenizer = Tokenizer.from_buffer(byte_tokenizer())
    expected = continued(model, tokenizer, shlex.split(generate)[-1], 20)
    assert len(expected) > 0
    assert f"{tokenizer.decode(expected)}\n" == written


def test_the_page_prints_a_family_s_tensors(tmp_path):
    """The script that lists names and shapes prints a line for each."""
    (tmp_path / "names.py").write_text(NAMES)

    assert "layers.1.attention.qkv.weight [96, 32]" in run(tmp_path, "python names.py").splitlines()
