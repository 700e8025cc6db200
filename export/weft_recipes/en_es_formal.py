"""Recipe `en-es-formal`: an adapter that lets the translator say usted ("LoRA", Hu et al. 2022)."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from weft_export.console import OnProgress
from weft_export.families.encoder_decoder import EncoderDecoder
from weft_export.graphs.adapting import adapter_spec
from weft_recipes.en_es import translate
from weft_recipes.grammar.alignment import encode
from weft_recipes.grammar.corpus import sample
from weft_recipes.grammar.pairs import Pair
from weft_recipes.grammar.register import formal, is_familiar
from weft_recipes.shared.base import load_base
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import PAD

SEED = 29
RANK, ALPHA = 4, 8
NAMES = ("qkv", "query", "key", "value", "output", "up_proj", "down_proj")
NUM_TRAINED, NUM_HELD_OUT = 20_000, 1_000
BATCH, NUM_STEPS, PEAK_LR = 128, 300, 1e-2
EXAMPLE = "do you have your book?"
CARD = Card(
    name="en-es-formal",
    title="an adapter that says usted",
    summary="Beside [en-es](../en-es/README.md), it lets the translator say *usted* to strangers, where it says *tú*:\n"
    "`do you have your book?` becomes `¿tiene su libro?`. It is in PEFT's format.",
    data="Sentences of the grammar of en-es whose Spanish is turned into the formal register by rules\n"
    "(`weft_recipes/grammar/register.py`). A quarter of them say *you* or *your*; the others stay as they are.\n"
    "The figures are of combinations of subject, verb and object that occur in no training sentence.",
    model=f"LoRA (Hu et al. 2022) of rank {RANK}, alpha {ALPHA}, beside every product of the layers; float32.\n"
    "The weights of en-es were frozen.",
    notes="It is for the weights of en-es as they are kept here, and for no others.",
)


class Adapter(nn.Module):
    """alpha / r * x A B beside a product. B begins at zero, so at first nothing is added (section 4.1)."""

    def __init__(self, product: nn.Linear) -> None:
        super().__init__()
        outputs, inputs = product.weight.shape
        self.a = nn.Parameter(torch.randn(RANK, inputs) / inputs**0.5)
        self.b = nn.Parameter(torch.zeros(outputs, RANK))
        product.register_forward_hook(self._added)

    def _added(self, _: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        return out + ALPHA / RANK * functional.linear(functional.linear(given[0], self.a), self.b)


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train beside the frozen translator, write the adapter into `out`, and return held-out figures."""
    watch = Stopwatch()
    generator = prepare(SEED)
    checkpoint = load_base("en-es")
    model = checkpoint.model
    assert isinstance(model, EncoderDecoder)
    source, target = (Tokenizer.from_str(checkpoint.files[name].decode()) for name in ("source.json", "target.json"))
    held_out = sample(NUM_HELD_OUT, SEED + 2, held_out=True)
    before = _exact(model, source, target, held_out)
    model.requires_grad_(requires_grad=False)
    paths = [layer.name for layer in adapter_spec(model, RANK, NAMES).layers]
    products: list[Any] = [model.get_submodule(path) for path in paths]
    adapters = nn.ModuleList(Adapter(product) for product in products)
    rows = encode(source, target, [formal(pair) for pair in sample(NUM_TRAINED, SEED, held_out=False)])
    rows = sorted(rows, key=lambda row: (len(row.source), len(row.target)))
    order = shuffled(len(rows) // BATCH, 1, generator)

    def loss_of(_step: int) -> Tensor:
        first = int(next(order)) * BATCH
        batch = rows[first : first + BATCH]
        fed, wanted = pad([row.source for row in batch], PAD), pad([row.target for row in batch], PAD)
        lengths = torch.tensor([len(row.source) for row in batch])
        logits = model(fed, lengths, wanted[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), wanted[:, 1:].flatten(), ignore_index=PAD)

    fit(adapters, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, on_progress=on_progress)
    _save(out, dict(zip(paths, adapters, strict=True)))
    with torch.no_grad():
        after = _exact(model, source, target, held_out)
        example = translate(model, source, target, [EXAMPLE])[0]
    figures: Figures = {
        "formal sentences right on held-out combinations, of those to you": after[0],
        "without the adapter": before[0],
        "all held-out sentences right": after[1],
        "parameters": sum(each.numel() for each in adapters.parameters()),
        f"“{EXAMPLE}”": example,
        **watch.figures(),
    }
    write_card(out, CARD, figures)
    return figures


def _exact(model: EncoderDecoder, source: Tokenizer, target: Tokenizer, pairs: list[Pair]) -> tuple[float, float]:
    """Return which share is right of the formal sentences to you, and of all."""
    answers = translate(model, source, target, [pair.source for pair in pairs])
    right = [answer == formal(pair).target for answer, pair in zip(answers, pairs, strict=True)]
    to_you = [is_right for is_right, pair in zip(right, pairs, strict=True) if is_familiar(pair)]
    return sum(to_you) / len(to_you), sum(right) / len(right)


def _save(out: Path, adapters: dict[str, nn.Module]) -> None:
    """Write an adapter as PEFT writes one."""
    tensors = {}
    for path, adapter in adapters.items():
        for part in ("a", "b"):
            tensors[f"base_model.model.{path}.lora_{part.upper()}.weight"] = getattr(adapter, part).detach()
    out.mkdir(parents=True, exist_ok=True)
    (out / "adapter_model.safetensors").write_bytes(safetensors.torch.save(tensors))
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "en-es",
        "r": RANK,
        "lora_alpha": ALPHA,
        "bias": "none",
        "target_modules": sorted({path.rpartition(".")[2] for path in adapters}),
    }
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
