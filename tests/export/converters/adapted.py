"""Models of transformers that PEFT adapts, and one question for each: what PEFT answers, and what ours does."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from captioner_kinds import CAPTIONERS
from cell_kinds import CELLS, made_cells
from decoder_kinds import BODIES, DECODERS
from encoder_kinds import CLASSIFIERS, EMBEDDERS, EXTRACTORS, FILLERS, TAGGERS, masking
from hf_models import VOCAB, Kind, made, token_rows
from hybrid_kinds import HYBRIDS
from picture_kinds import DINOV2, PICTURES, REGISTERS, SIGLIP_ALONE, VIT_BODY
from query_kinds import BLIP2, inputs_of, made_queries
from seq2seq_kinds import SEQ2SEQ
from sight_kinds import SEEING, SPLITTING, TILING, chat_of, made_seeing, pictures, their_inputs
from stretch_kinds import GEMMA3, STRETCHES, made_stretches
from test_captioners import their_logits, with_processor
from test_pairs import OTHER, joining
from test_pictures import made_with_processor
from test_stretches import asked
from test_stretches import inputs_of as inputs_of_stretches
from test_whisper import MELS, WHISPER, made_whisper
from torch import Tensor

from late import Late
from weft_export.adapters.layout import check_layout
from weft_export.adapters.merging import pairs_of, write_merged
from weft_export.adapters.peft import read_adapter
from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.converters.convert import convert
from weft_export.graphs.adapting import adapter_spec
from weft_export.options import DEFAULT_OPTIONS, ExportOptions

peft = Late("peft")

RANK = 2
POOLED = ExportOptions(pooling="mean")


class Case(NamedTuple):
    """A random model on disk, and one question in two forms."""

    model: torch.nn.Module
    theirs: Callable[[torch.nn.Module], Tensor]
    ours: Callable[[Checkpoint], Tensor]
    options: ExportOptions = DEFAULT_OPTIONS
    inside: tuple[str, ...] = ("layer", "block", ".h.")


def case_of(kind: Kind, directory, seed: int = 0) -> Case:
    """Write a random model of a kind, and return it with a question."""
    for kinds, make in _MAKERS:
        if kind in kinds:
            return make(kind, directory, seed)
    raise AssertionError(kind)


def _decoder(kind, directory, seed):
    model = made(kind, seed, directory)
    tokens = torch.tensor(token_rows(model.config.vocab_size, (40,), seed))
    options = ExportOptions(max_tokens=96)
    return Case(model, lambda each: each(tokens).logits, lambda each: each.model.decode(tokens), options)


def _encoder(kind, directory, seed):
    model = made(kind, seed, directory)
    tokens = torch.tensor(token_rows(VOCAB, (40,), seed))
    lengths = torch.tensor([40], dtype=torch.int32)
    return Case(model, lambda each: each(input_ids=tokens).logits, lambda each: each.model(tokens, lengths))


def _extractor(kind, directory, seed):
    model = made(kind, seed, directory)
    joining(directory, separator=OTHER)
    tokens = torch.tensor(token_rows(VOCAB, (40,), seed))
    tokens[tokens == OTHER] += 1
    tokens[0, 15] = OTHER
    segments = {}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        segments = {"token_type_ids": (torch.arange(40) > 15).long()[None]}
    lengths = torch.tensor([40], dtype=torch.int32)

    def theirs(each):
        # The module below PEFT's own of this task, which knows no type_vocab_size.
        body = each.base_model.model if isinstance(each, peft.PeftModel) else each
        said = body(input_ids=tokens, **segments)
        return torch.stack((said.start_logits, said.end_logits), dim=-1)

    return Case(model, theirs, lambda each: each.model(tokens, lengths))


def _filler(kind, directory, seed):
    model = made(kind, seed, directory)
    masking(directory)
    tokens = torch.tensor(token_rows(VOCAB, (40,), seed))
    lengths, positions = torch.tensor([40], dtype=torch.int32), torch.tensor([[3, 20, 39]])
    return Case(
        model,
        lambda each: each(input_ids=tokens).logits[:, positions[0]],
        lambda each: each.model(tokens, lengths, positions),
    )


def _embedder(kind, directory, seed):
    model = made(kind, seed, directory)
    tokens = torch.tensor(token_rows(VOCAB, (40,), seed))
    lengths = torch.tensor([40], dtype=torch.int32)

    def theirs(each):
        body = each.base_model.model if isinstance(each, peft.PeftModel) else each
        if kind.name.endswith("-words"):
            body = body.base_model
        return torch.nn.functional.normalize(body(input_ids=tokens).last_hidden_state.mean(dim=1), dim=-1)

    return Case(model, theirs, lambda each: each.model(tokens, lengths), POOLED)


def _picture(kind, directory, seed):
    model, pixels = made_with_processor(kind, seed, directory)
    return Case(model, lambda each: each(pixel_values=pixels).logits, lambda each: each.model(pixels))


def _picture_body(kind, directory, seed):
    model, pixels = made_with_processor(kind, seed, directory)

    def theirs(each):
        places = each(pixel_values=pixels).last_hidden_state
        num_tokens = 1 + getattr(model.config, "num_register_tokens", 0)
        return torch.nn.functional.normalize(places[:, num_tokens:].mean(dim=1), dim=-1)

    return Case(model, theirs, lambda each: each.model(pixels), POOLED)


def _picture_vector(kind, directory, seed):
    model, pixels = made_with_processor(kind, seed, directory)

    def theirs(each):
        return torch.nn.functional.normalize(each(pixel_values=pixels).pooler_output, dim=-1)

    return Case(model, theirs, lambda each: each.model(pixels))


def _seq2seq(kind, directory, seed):
    model = made(kind, seed, directory)
    source, target = (torch.tensor([row]) for row in token_rows(VOCAB, (13, 30), seed))
    lengths = torch.tensor([13], dtype=torch.int32)
    return Case(
        model,
        lambda each: each(input_ids=source, decoder_input_ids=target).logits,
        lambda each: each.model.decode(target, source, lengths),
        ExportOptions(max_tokens=80),
    )


def _captioner(kind, directory, seed):
    model = made(kind, seed, directory)
    pixels = with_processor(directory)
    target = torch.tensor(token_rows(VOCAB, (30,), seed)).expand(len(pixels), -1)

    def theirs(each):
        return their_logits(each.base_model.model if isinstance(each, peft.PeftModel) else each, pixels, target)

    return Case(model, theirs, lambda each: each.model.decode(target, pixels), ExportOptions(max_tokens=80))


DECODER = ("language_model.layers", "language_model.model.decoder.layers", "text_model.layers")
"""Where the layers of decoders are that see."""


def _seeing(kind, directory, seed):
    model, inputs = _shown(kind, directory, seed)

    def ours(checkpoint):
        ids, text = inputs["input_ids"], checkpoint.text
        places = ids.masked_fill(ids == text.image_id, text.source_vocab_size)
        seen = [inputs[name] for name in ("pixel_values",) if name in inputs]
        return checkpoint.model.decode(places, *seen)

    options = ExportOptions(max_tokens=90 if kind is BLIP2 else 200)
    return Case(model, lambda each: each(**inputs).logits, ours, options, DECODER)


def _shown(kind, directory, seed):
    """A model on disk, and what it reads of a chat: with pictures, where one is one tile of one size."""
    shown = pictures(2, seed)
    if kind is BLIP2:
        model, processor = made_queries(seed, directory)
        return model, dict(inputs_of(processor, shown[0], "What is here?"))
    if kind in STRETCHES:
        model, processor = made_stretches(kind, seed, directory)
        return model, inputs_of_stretches(kind, processor, chat_of(shown) if kind is GEMMA3 else asked(shown))
    if kind in SEEING:
        model, processor = made_seeing(kind, seed, directory)
        return model, their_inputs(processor, chat_of(shown))
    model = (made_cells if kind in CELLS else made_seeing)(kind, seed, directory)[0]
    return model, {"input_ids": torch.tensor(token_rows(VOCAB, (40,), seed))}


def _whisper(_, directory, seed):
    model = made_whisper(directory, seed)
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(1, MELS, 2 * model.config.max_source_positions, generator=generator)
    target = torch.tensor(token_rows(200, (30,), seed))
    return Case(
        model,
        lambda each: each(input_features=features, decoder_input_ids=target).logits,
        lambda each: each.model.decode(target, features),
    )


_MAKERS = (
    # Those that keep states beside attention take none.
    ([kind for kind in DECODERS if kind not in HYBRIDS], _decoder),
    ([*CLASSIFIERS, *TAGGERS], _encoder),
    (EXTRACTORS, _extractor),
    (FILLERS, _filler),
    ([*EMBEDDERS, *BODIES], _embedder),
    (PICTURES, _picture),
    ([VIT_BODY, DINOV2, REGISTERS], _picture_body),
    ([SIGLIP_ALONE], _picture_vector),
    (SEQ2SEQ, _seq2seq),
    (CAPTIONERS, _captioner),
    ([*SEEING, *TILING, *SPLITTING, *CELLS, *STRETCHES, BLIP2], _seeing),
    ([WHISPER], _whisper),
)
KINDS = {kind.name: kind for kinds, _ in _MAKERS for kind in kinds}


def linears(model, *, inside=("layer", "block", ".h.")):
    """The paths of the products of a model's layers, by PEFT's own names of modules."""
    kinds = (torch.nn.Linear, peft.tuners.lora.layer.Conv1D)
    return [
        path
        for path, module in model.named_modules()
        if isinstance(module, kinds) and any(word in f".{path}." for word in inside)
    ]


def randomise(theirs, size):
    """Draw A and B, as if they had been trained."""
    with torch.no_grad():
        for path, parameter in theirs.named_parameters():
            if ".lora_" in path or "trainable_tokens" in path:
                parameter.normal_(0, size * parameter[0].numel() ** -0.5)


def adapted(model, directory, seed=0, *, size=1.0, name="default", **config):
    """Return a model with a random adapter, which PEFT has saved. size of None: it is as PEFT begins."""
    torch.manual_seed(seed)
    given = {"r": RANK, "lora_alpha": 6, "target_modules": linears(model), **config}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it does not train, and of what it takes otherwise than the config
        theirs = peft.get_peft_model(model, peft.LoraConfig(**given), name).eval()
        if size is not None:
            randomise(theirs, size)
        theirs.save_pretrained(directory)
    return theirs


def read_back(case: Case, checkpoint, adapter, merged, *, proved=True):
    """Read an adapter's directory over its base, hold its products to PEFT's, and return our answer."""
    merged.mkdir()
    by_weight = write_merged(checkpoint, read_adapter(adapter), merged)
    base, right = (convert(each, case.options) for each in (checkpoint, merged))
    if proved:
        model = base.checkpoint.model
        pairs = pairs_of(model, right.checkpoint.model, adapter_spec(model, 2 * RANK), base.made_of)
        check_layout(model, pairs, by_weight, base.made_of)
    with torch.inference_mode():
        return case.ours(right.checkpoint)
