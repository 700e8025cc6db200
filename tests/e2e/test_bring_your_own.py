"""docs/bring-your-own.md, done as it is written: five models of somebody's own, and their answers."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from tiny_parts import byte_tokenizer
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/bring-your-own.md").read_text()
TRAIN, BAG, TRAIN_BAG, PETS, RENAME, NAMES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(PROJECT,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
# Each command, without its comment, and the line that the page shows under it.
COMMANDS = re.findall(r"^\$ (.*?)(?: +#.*)?\n((?!\$|```).*\n)?", PAGE.replace(" \\\n    ", " "), re.MULTILINE)
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


def random_llama(directory):
    """A Hugging Face directory of transformers' own making, and the model."""
    torch.manual_seed(4)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=VOCAB, num_key_value_heads=1, eos_token_id=1, max_position_embeddings=128, **sizes)
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_bytes(byte_tokenizer())
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return model


def install(directory):
    """What pip leaves of the page's package: the module, and a dist-info with its entry point."""
    home = directory / "bag-of-words"
    info = home / "bag_of_words-0.1.dist-info"
    info.mkdir(parents=True)
    (home / "bag_of_words.py").write_text(BAG)
    project = tomllib.loads(PROJECT)["project"]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["weft.families"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[weft.families]", *lines]))


def run(directory, command, target=""):
    """Run a command as a reader of the page does; return what it prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "WEFT_TARGET": target, "PYTHONPATH": str(directory / "bag-of-words")}
    done = subprocess.run(
        shlex.split(command), cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_models_of_ones_own_are_served(tmp_path):
    """The page's scripts and commands, as they stand there. Each model answers as it did where it comes from.

    One command is not run: pip would fetch the build backend. What it would leave is put there instead.
    """
    (tmp_path / "export").symlink_to(ROOT / "export")
    scripts = {"train.py": TRAIN, "train_bag.py": TRAIN_BAG, "pets.py": PETS, "rename.py": RENAME}
    for name, script in scripts.items():
        (tmp_path / name).write_text(script)
    llama, model = random_llama(tmp_path / "my-llama"), random_gpt()
    torch.save(model.state_dict(), tmp_path / "mine.pt")
    (tmp_path / "tokenizer.json").write_bytes(byte_tokenizer())
    install(tmp_path)
    places = [place for place, (command, _) in enumerate(COMMANDS) if command == "weft serve models"]
    makes, asks = COMMANDS[: places[0]], COMMANDS[places[0] + 1 :]

    for command, _ in makes:
        if not command.startswith("pip "):
            run(tmp_path, command)
    with ServerProcess(tmp_path / "models") as server:
        server.wait_for("ready", timeout=120)
        answers = [run(tmp_path, command, server.target) for command, _ in asks]

    written, digit, topic, pet, own = answers
    assert ["7\n", "networks\n"] == [shown for _, shown in asks if shown]
    assert ("7\n", "networks\n") == (digit, topic)
    assert pet in {"cat\n", "dog\n"}
    tokenizer = Tokenizer.from_buffer(byte_tokenizer())
    prompt = tokenizer.encode(shlex.split(asks[0][0])[-1]).ids
    theirs = llama.generate(torch.tensor([prompt]), max_new_tokens=64 - len(prompt), do_sample=False, pad_token_id=0)
    expected = [token for token in theirs[0, len(prompt) :].tolist() if token != 1]
    assert len(expected) > 0
    assert tokenizer.decode(expected).startswith(written.rstrip("\n"))
    expected = continued(model, tokenizer, shlex.split(asks[-1][0])[-1], 20)
    assert len(expected) > 0
    assert f"{tokenizer.decode(expected)}\n" == own


def test_a_training_loop_needs_twelve_lines_more():
    """What the page's first script has behind its loop, imports and all."""
    added = TRAIN.split("These twelve lines make a checkpoint of the model.\n")[1]

    assert 12 == len([line for line in added.splitlines() if line.strip()])


def test_the_page_prints_a_family_s_tensors(tmp_path):
    """The script that lists names and shapes prints a line for each."""
    (tmp_path / "names.py").write_text(NAMES)

    assert "layers.1.attention.qkv.weight [96, 32]" in run(tmp_path, "python names.py").splitlines()
