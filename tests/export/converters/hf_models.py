"""Random models of transformers on disk, and what is asked of them and of ours: the harness of this folder's tests."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from tiny_parts import byte_tokenizer
from tokenizer_directories import OLDER, reference
from tokenizer_directories import write as write_tokenizer
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.converters.convert import convert
from weft_export.graphs.answering import Row as Asked
from weft_export.graphs.answering import torch_run, write
from weft_export.graphs.graphs import graphs_of
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2

NUM_LONG = 20
"""How many random configurations of each kind the long tests draw."""
LOGITS = 1e-4
"""How far a logit of ours may be from theirs, as `furthest` counts."""
VOCAB, END, PAD = 300, 1, 0
TABLES = 0.5
"""How long the vectors of tokens and places are. What layers add is longer, so that an answer depends on it."""


@dataclass(frozen=True)
class Kind:
    """A row of a table: a class of transformers, and how a random config of it is drawn."""

    name: str
    architecture: str
    draw: Callable[[random.Random], dict]
    gain: float = 2.0
    """How large the numbers are that a matrix makes of numbers of size 1."""


def made(kind: Kind, seed: int, directory: Path, **saving) -> torch.nn.Module:
    """Write a random model with a byte tokenizer to a directory, and return it in eval mode."""
    model_class = getattr(transformers, kind.architecture)
    torch.manual_seed(seed)
    config = model_class.config_class(**kind.draw(random.Random(seed)))
    model = made_model(model_class, config, directory, kind.gain, **saving)
    (directory / "tokenizer.json").write_bytes(byte_tokenizer())
    # Otherwise the kind of model says how its tokenizer is read.
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return model


def made_model(model_class, config, directory: Path, gain: float = 2.0, **saving) -> torch.nn.Module:
    """Write a random model of a class to a directory, and return it in eval mode."""
    model = model_class(config).eval()
    enliven(model, gain)
    model.save_pretrained(directory, **saving)
    # As a user would have it: what the files do not hold was never there.
    loaded = model_class.from_pretrained(directory, dtype=torch.float32).eval()
    for module in loaded.modules():
        # transformers 5.23 loads TrOCR without its sinusoids, and then fails: they are in no file.
        if getattr(getattr(module, "weights", None), "is_meta", False):
            module.weights = module.get_embedding(*module.weights.shape, module.padding_idx)
    return loaded


def made_encoder(model_class, files: str, directory: Path, *, seed: int, more_rows: int) -> torch.nn.Module:
    """Save a random small encoder and a tokenizer of OLDER, as their own classes save them; return the encoder.

    more_rows: how many rows the table of words has beyond the highest id.
    """
    write_tokenizer(directory, *OLDER[files]())
    tokenizer = reference(directory)
    for path in directory.iterdir():
        path.unlink()
    tokenizer.save_pretrained(directory)
    transformers.set_seed(seed)
    config_class = model_class.config_class
    config = config_class(
        vocab_size=max(tokenizer.get_vocab().values()) + 1 + more_rows,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=68,
        pad_token_id=tokenizer.pad_token_id,
        **({} if config_class.model_type == "bert" else {"type_vocab_size": 1}),
    )
    return made_model(model_class, config, directory)


def enliven(model: torch.nn.Module, gain: float) -> None:
    """Draw weights with which answers vary. With those of a new model, a text repeats its last token for ever."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.requires_grad:
                continue  # sinusoids, which follow from the config
            if parameter.dim() < 2:
                # Norms and biases too: what is 1 or 0 everywhere proves nothing.
                parameter.add_(torch.randn_like(parameter) * 0.1)
            else:
                size = TABLES if id(parameter) in tables else gain
                parameter.normal_(0, size * parameter[0].numel() ** -0.5)


def converted(directory: Path, labels: tuple[str, ...] = (), **choices) -> Checkpoint:
    """Convert a directory, with labels in a file beside it."""
    if labels:
        choices["labels"] = directory.with_name(f"{directory.name}-labels.json")
        choices["labels"].write_text(json.dumps(labels))
    return convert(directory, ExportOptions(**choices)).checkpoint


def change_config(directory: Path, **fields) -> None:
    """Set fields of a directory's config.json."""
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def token_rows(vocab_size: int, lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    """Return rows of random tokens that are neither an end nor padding."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def greedy(checkpoint: Checkpoint, asked: list[Asked], max_new_tokens: int) -> list[list[int]]:
    """Answer rows as an engine does, a step at a time over caches, all rows in one batch: the new tokens of each."""
    given = [len(row.tokens) for row in asked]
    run = torch_run(graphs_of(checkpoint, bundle_pb2.PRECISION_FP32))
    with torch.inference_mode():
        write(run, checkpoint, asked, max_new_tokens)
    return [row.tokens[number:] for row, number in zip(asked, given, strict=True)]


def their_greedy(model: torch.nn.Module, inputs: dict[str, Tensor], max_new_tokens: int, **settings) -> list[int]:
    """Return the new tokens that generate() writes for one request, without beams and without drawing."""
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": max_new_tokens, **settings}
    with torch.inference_mode():
        produced = model.generate(**inputs, **settings)[0].tolist()
    return produced[inputs["input_ids"].shape[1] :] if not model.config.is_encoder_decoder else produced[1:]


def furthest(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference of two tensors of one shape. Where theirs are over 1, it is a share of the largest.

    Rounding follows the size of numbers. See docs/decisions/parity-by-size.md.
    """
    assert theirs.shape == ours.shape
    return float((ours - theirs).abs().max()) / max(1.0, float(theirs.abs().max()))
