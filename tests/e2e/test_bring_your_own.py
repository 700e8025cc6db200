"""docs/bring-your-own.md, done as it is written: somebody's own GPT, from its state_dict to an answer over the wire."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_parts import byte_tokenizer
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

import weft
from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGE = (Path(__file__).parents[2] / "docs" / "bring-your-own.md").read_text()
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ weft (.*)$", PAGE, re.MULTILINE)
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


def run(directory, *command):
    """Run a command as a reader of the page does."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_a_model_of_ones_own_is_served(tmp_path):
    """The page's script and commands, as they stand there, serve what the model's own loop writes."""
    torch.manual_seed(3)
    model = MyGpt().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
    torch.save(model.state_dict(), tmp_path / "mine.pt")
    (tmp_path / "tokenizer.json").write_bytes(byte_tokenizer())
    tokenizer = Tokenizer.from_buffer(byte_tokenizer())
    export, serve, generate = (command.split(" ", 1) for command in COMMANDS)
    prompt = generate[1].strip('"')

    run(tmp_path, sys.executable, "-c", SCRIPTS[0])
    listed = run(tmp_path, sys.executable, "-c", SCRIPTS[1])
    assert "layers.1.attention.qkv.weight [96, 32]" in listed.splitlines()
    assert ["export", "serve", "generate"] == [export[0], serve[0], generate[0]]
    run(tmp_path, "weft", "export", *export[1].split())
    with ServerProcess(tmp_path / serve[1].split()[-1]) as server:
        server.wait_for("ready", timeout=120)
        with weft.Client(server.target, timeout=60) as client:
            actual = client.generate(prompt)

    expected = continued(model, tokenizer, prompt, 20)
    assert len(expected) > 0
    assert tokenizer.decode(expected) == actual.text
