"""The families in torch: the cached path, masks, and what their sizes must be."""

import dataclasses
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from samples import WRITERS, sample
from tiny import CHECKPOINTS, save_tiny, tiny_caption, tiny_generate, tiny_text, tiny_translate

from weft_export.converters.registry import MODULE_OF
from weft_export.families.registry import FAMILIES
from weft_export.families.writer import KV_CACHE, RECURRENT, Writer
from weft_export.graphs.views import candidates
from weft_export.layers.run import Run
from weft_proto.ctc import num_frames_of, num_labels_of
from weft_proto.sound import window_samples
from weft_proto.tasks import TASKS

BATCH = 3
GENERATORS = [name for name in WRITERS if not sample(name).text.HasField("start_id")]
WITH_ENCODER = [name for name in WRITERS if name not in GENERATORS]
EXPLAINING = [name for name in CHECKPOINTS if sample(name).model.attention_heads]


def lengths_of(*values):
    """Make an int32 tensor of lengths."""
    return torch.tensor(values, dtype=torch.int32)


def a_source(checkpoint):
    """Make a random ragged batch for a model with an encoder, and the lengths of its memory."""
    text, image = checkpoint.text, checkpoint.image
    if image is not None:
        positions = image.num_class_tokens + image.grid_rows * image.grid_columns
        return (torch.randn(BATCH, image.channels, image.height, image.width),), lengths_of(*[positions] * BATCH)
    if TASKS[checkpoint.task].labels_frames and (mel := checkpoint.audio.ctc.mel).num_mels:
        return (torch.randn(BATCH, num_frames_of(mel, 900), mel.num_mels),), lengths_of(*[900] * BATCH)
    if TASKS[checkpoint.task].labels_frames:
        return (torch.randn(BATCH, 900),), lengths_of(*[900] * BATCH)
    if checkpoint.audio is not None and checkpoint.audio.min_samples:
        return (torch.randn(BATCH, 1800),), lengths_of(*[num_labels_of(checkpoint.audio, 1800)] * BATCH)
    if (audio := checkpoint.audio) is not None:
        return (torch.randn(BATCH, audio.num_mels, audio.num_frames),), lengths_of(*[audio.num_positions] * BATCH)
    ids, lengths = torch.randint(4, text.source_vocab_size, (BATCH, 11)), lengths_of(4, 11, 1)
    return (ids, lengths, *positions_for(checkpoint, BATCH)), lengths


def positions_for(checkpoint, batch):
    """Of a model that fills masks, the places of some, which may be behind a text's end."""
    if not TASKS[checkpoint.task].fills_masks:
        return ()
    return (torch.tensor([[1, 3]]).expand(batch, -1),)


def states_of(model, encoded, source_length, batch=BATCH):
    """Make a model's states full of rubbish, which nothing may read, and put in what the encoder wrote."""
    encoded, states = iter(encoded), []
    for state in model.states:
        tensor = torch.full((batch, *state.shape), 1e3)
        if state.encoded and state.kind != RECURRENT:
            tensor.narrow(1 + state.length_axis, 0, source_length).copy_(next(encoded))
        elif state.kind == RECURRENT:
            tensor = next(encoded) if state.encoded else torch.zeros(batch, *state.shape)
        states.append(tensor)
    return states


def put_back(model, states, presents):
    """Return the states after a step: those it returned, and the memories that it did not."""
    presents = iter(presents)
    return [next(presents) if state.returned else past for state, past in zip(model.states, states, strict=True)]


@torch.inference_mode()
@pytest.mark.parametrize("name", WITH_ENCODER)
def test_cached_decoding_equals_full_recomputation(name):
    """Decoding through the states gives, to the last position there is, the greedy tokens of a full recomputation."""
    torch.manual_seed(0)
    checkpoint = CHECKPOINTS[name]()
    model, capacity = checkpoint.model, checkpoint.text.max_total_tokens
    source, memory_lengths = a_source(checkpoint)
    # Of a picture that stands in the caches.
    begun = int(memory_lengths[0]) if any(s.encoded and s.kind == KV_CACHE for s in model.states) else 0
    states = states_of(model, model.encode_states(*source), int(memory_lengths.max()))
    tokens = torch.full((BATCH, 1), checkpoint.text.start_id)

    for position in range(begun, capacity):
        past, one = lengths_of(*[position] * BATCH), lengths_of(*[1] * BATCH)
        run = Run(tokens[:, -1:], past, one, lengths_of(capacity), memory_lengths)
        logits, presents = model.step(run, states)
        states = put_back(model, states, presents)
        full = model.decode(tokens, *source)[:, -1]

        torch.testing.assert_close(logits, full, atol=1e-4, rtol=1e-4)
        assert full.argmax(-1).tolist() == logits.argmax(-1).tolist()
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    assert capacity - begun + 1 == tokens.shape[1]


def read_in_stretches(model, rows, features, states):
    """Read each row alone into its states, its stretches in both directions, and return the logits behind each."""
    found = []
    for index, row in enumerate(rows):
        stretches = model.stretches(row, len(row))
        ends = sorted({0, len(row), *(place for stretch in stretches for place in stretch)})
        for start, stop in pairwise(ends):
            run = Run(
                torch.tensor([row[start:stop]]),
                lengths_of(start),
                lengths_of(stop - start),
                lengths_of(len(row)),
                None,
                features=features[index : index + 1, start:stop],
                bidirectional=(start, stop) in stretches,
            )
            logits, presents = model.step(run, [state[index : index + 1] for state in states])
            for state, present in zip(states, presents, strict=True):
                state[index : index + 1] = present
        found.append(logits[0])
    return found


def assert_generation_equals_recomputation(model, capacity, vocab_size):
    """Prefill three ragged prompts at once, decode to the last position, and compare each step."""
    torch.manual_seed(0)
    rows = [torch.randint(vocab_size, (length,)).tolist() for length in (5, 9, 16)]
    states = states_of(model, (), 0)
    sources = [()] * len(rows)
    if model.sees:
        rows[1][2:7], rows[2][:10] = [vocab_size] * 5, [vocab_size] * 10
        sight = model.config.sight
        # As many as 10 places are of.
        count = -(-10 // sight.num_places)
        # Of cells there are as many in one picture.
        shape = (1, 2, 5) if model.offsets_positions else (count,)
        picture = (torch.randn(*shape, sight.channels, sight.image_height, sight.image_width),)
        sources[1:] = [picture, picture]
    padded = torch.tensor([row + [7] * (16 - len(row)) for row in rows])

    def features(ids, sources):
        """What the rows have in the place of pictures, of a model that sees any."""
        if not model.sees:
            return None
        seen = (model.see(*source) if source else None for source in sources)
        return torch.cat([model.placed(row[None], each) for row, each in zip(ids, seen, strict=True)])

    def offsets(rows, first=0):
        """Where the tokens of rows stand from the `first` of each on, of a model that is told."""
        if not model.offsets_positions:
            return None
        placed = (model.offsets(torch.tensor([row]), *source) for row, source in zip(rows, sources, strict=True))
        return torch.cat([each[:, :-1][:, first:] for each in placed])

    run = Run(padded, lengths_of(0, 0, 0), lengths_of(5, 9, 16), lengths_of(capacity), None)
    beside = {"features": features(padded, sources), "position_offsets": offsets(padded.tolist())}
    given = [len(row) for row in rows]
    if model.bidirectional:
        logits = read_in_stretches(model, rows, beside["features"], states)
    else:
        logits, states = model.step(dataclasses.replace(run, **beside), states)
    while len(rows[2]) < capacity:
        for row, row_logits, source, num_given in zip(rows, logits, sources, given, strict=True):
            full = model.decode_behind(num_given, torch.tensor([row]), *source)[0, -1]
            torch.testing.assert_close(row_logits, full, atol=1e-4, rtol=1e-4)
            assert int(full.argmax()) == int(row_logits.argmax())
            row.append(int(full.argmax()))
        past = lengths_of(*[len(row) - 1 for row in rows])
        last = torch.tensor([row[-1:] for row in rows])
        beside = {"features": features(last, [()] * 3), "position_offsets": offsets(rows, -1)}
        run = Run(last, past, lengths_of(1, 1, 1), lengths_of(capacity), None, **beside)
        logits, states = model.step(run, states)


@torch.inference_mode()
@pytest.mark.parametrize("name", GENERATORS)
def test_cached_generation_equals_full_recomputation(name):
    """Ragged prefill and then decoding to the model's last position gives the tokens of a full recomputation."""
    checkpoint = CHECKPOINTS[name]()
    assert_generation_equals_recomputation(
        checkpoint.model, checkpoint.text.max_total_tokens, checkpoint.text.source_vocab_size
    )


@torch.inference_mode()
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_grouped_key_and_value_heads(num_kv_heads):
    """Any number of key and value heads that divides the query heads decodes like a full recomputation."""
    torch.manual_seed(0)
    config = dataclasses.replace(tiny_generate().model.config, num_kv_heads=num_kv_heads)
    assert_generation_equals_recomputation(FAMILIES["causal_lm"].model(config).eval(), config.max_tokens, 300)


@torch.inference_mode()
def test_prefill_in_chunks_equals_prefill_at_once():
    """A prompt run in padded chunks leaves the logits and the valid cache of the prompt run at once."""
    model = tiny_generate().model
    prompt = torch.randint(300, (1, 13))

    def run(ids, past, length, states):
        return model.step(Run(ids, lengths_of(past), lengths_of(length), lengths_of(64), None), states)

    whole, expected = run(prompt, 0, 13, states_of(model, (), 0, 1))
    _, states = run(prompt[:, :8], 0, 8, states_of(model, (), 0, 1))
    rest = torch.cat((prompt[:, 8:], torch.zeros(1, 3, dtype=torch.int64)), dim=1)
    chunked, states = run(rest, 8, 5, states)

    torch.testing.assert_close(chunked, whole, atol=1e-4, rtol=1e-4)
    for state, expected_state in zip(states, expected, strict=True):
        torch.testing.assert_close(state[:, :, :13], expected_state[:, :, :13], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_padding_of_a_source_changes_nothing():
    """What stands behind a source's or a text's end has no influence."""
    ids, target, length = torch.randint(4, 20, (1, 16)), torch.randint(4, 20, (1, 5)), torch.tensor([6])
    translator, classifier = tiny_translate().model, tiny_text().model

    torch.testing.assert_close(
        translator(ids, length, target), translator(ids[:, :6], length, target), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(classifier(ids, length), classifier(ids[:, :6], length), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_no_position_sees_the_future():
    """A target token changes no logits before its own position."""
    pixels, target = torch.randn(1, 3, 16, 24), torch.randint(4, 20, (1, 8))
    model = tiny_caption().model
    changed = target.clone()
    changed[0, 5] = 3

    torch.testing.assert_close(model(pixels, changed)[:, :5], model(pixels, target)[:, :5])
    assert not torch.equal(model(pixels, changed)[:, 5:], model(pixels, target)[:, 5:])


def explained(checkpoint, layer, head, length=9):
    """What a random request of some length attended to, and how many rows it must have."""
    model, image, text = checkpoint.model, checkpoint.image, checkpoint.text
    if image is not None and TASKS[checkpoint.task].takes_image:
        source = (torch.randn(1, image.channels, image.height, image.width),)
    elif checkpoint.audio is not None and checkpoint.audio.min_samples:
        source = (torch.randn(1, window_samples(checkpoint.audio)),)
    elif checkpoint.audio is not None:
        source = (torch.randn(1, checkpoint.audio.num_mels, checkpoint.audio.num_frames),)
    else:
        ids = torch.randint(4, text.source_vocab_size, (1, length))
        source = (ids, lengths_of(length), *positions_for(checkpoint, 1))
    if checkpoint.sees:
        ids[:, 2:6] = text.source_vocab_size
        source = (*source, model.placed(ids, torch.randn(1, 4, model.feature_width)))
    if isinstance(model, Writer) and model.offsets_positions:
        source = (*source, model.offsets(ids, torch.zeros(1, 2, 2))[:, :-1])
    chosen = (torch.tensor([layer]), torch.tensor([head]))
    if not isinstance(model, Writer):
        rows = 2 if TASKS[checkpoint.task].fills_masks else 1
        return model.explain(*chosen, *source), length if TASKS[checkpoint.task].labels_tokens else rows
    target = torch.randint(4, text.target_vocab_size, (1, 5))
    return model.explain(*chosen, target, *source), 5 if text.HasField("start_id") else 6


@torch.inference_mode()
@pytest.mark.parametrize("name", EXPLAINING)
def test_explanations_are_distributions_over_the_source(name):
    """By default, and for each layer and head, every row sums to 1 within 1e-5 and is as long as the source."""
    checkpoint = CHECKPOINTS[name]()
    image = checkpoint.image
    columns = image.grid_rows * image.grid_columns if TASKS[checkpoint.task].takes_image else 9
    if checkpoint.audio is not None:
        columns = checkpoint.audio.num_positions
        if checkpoint.audio.min_samples:
            columns = num_labels_of(checkpoint.audio, window_samples(checkpoint.audio))
    heads = checkpoint.model.attention_heads
    default = -1 if checkpoint.attention_layer is None else checkpoint.attention_layer

    for layer, head in [(default, -1), *((i, h) for i, count in enumerate(heads) for h in (-1, *range(count)))]:
        (weights, mass, *target), rows = explained(checkpoint, layer, head)

        for target_weights in target:
            assert (rows, rows) == target_weights.shape
            assert not target_weights.triu(1).any()
            assert bool((target_weights >= 0).all())
            # Of one attention, or of one of its own beside that of a memory.
            parts = target_weights.sum(-1) + (0 if checkpoint.family == "answerer" else mass)
            assert parts.max() < 1 + 1e-5
        assert TASKS[checkpoint.task].takes_question == bool(target)
        assert (rows, columns) == weights.shape
        assert (weights.sum(-1) - 1).abs().max() < 1e-5
        assert bool((weights >= 0).all())
        assert bool(((mass > 0) & (mass <= 1 + 1e-5)).all())


@torch.inference_mode()
@pytest.mark.parametrize("name", EXPLAINING)
def test_a_layer_is_the_average_of_its_heads(name):
    """Without a head, a layer's attention before normalisation is the mean over its heads."""
    checkpoint = CHECKPOINTS[name]()
    for layer, num_heads in enumerate(checkpoint.model.attention_heads):
        parts = []
        for head in (-1, *range(num_heads)):
            torch.manual_seed(0)
            (weights, mass, *target), _ = explained(checkpoint, layer, head)
            parts.append(torch.cat((weights * mass[:, None], *target), dim=1))

        torch.testing.assert_close(parts[0], torch.stack(parts[1:]).mean(dim=0), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_have_the_shape_of_the_task(name):
    """A family gives logits for the vocabulary at each position or mask, for the labels, of each token; or a vector."""
    checkpoint = CHECKPOINTS[name]()
    if isinstance(checkpoint.model, Writer):
        source = a_source(checkpoint)[0] if name in WITH_ENCODER else ()
        logits = checkpoint.model.decode(torch.zeros(BATCH, 5, dtype=torch.int64), *source)
        assert (BATCH, 5, checkpoint.text.target_vocab_size) == logits.shape
    else:
        # Of two towers, each of the pictures is held to each of the texts.
        source = tuple(tensor for tower in checkpoint.towers for tensor in a_source(tower)[0])
        task, config = TASKS[checkpoint.task], checkpoint.model.config
        rows = (11,) if checkpoint.gives_rows else (2,) if task.fills_masks else ()
        if task.labels_frames:
            rows = (num_labels_of(checkpoint.audio, 900),)
        width = config.vocab_size if task.fills_masks else len(checkpoint.labels)
        if task.embeds:
            # Behind the vector of a token may be its weight.
            weighs = getattr(config, "weighs", None) is not None
            width = BATCH if task.matches else config.dimensions + weighs
        assert (BATCH, *rows, width) == checkpoint.model(*source).shape


@pytest.mark.parametrize(
    ("config", "change", "complaint"),
    [
        (tiny_translate().model.config, {"d_model": 40}, "= 40 / 2 numbers; that must be a multiple of 8"),
        (tiny_translate().model.config, {"d_ff": 0}, "d_ff must be"),
        (tiny_translate().model.config, {"dropout": 1.0}, "dropout must be a number"),
        (tiny_caption().model.config, {"image_width": 30}, "multiple of patch_size"),
        (tiny_generate().model.config, {"d_model": 96}, "= 96 / 4 numbers; that must be a multiple of 16"),
        (tiny_generate().model.config, {"num_kv_heads": 3}, "multiple of num_kv_heads"),
        (tiny_generate().model.config, {"rope_theta": 0.5}, "rope_theta must be"),
        (tiny_translate().model.config, {"shared_embedding": "false"}, "shared_embedding must be true or false"),
        (tiny_generate().model.config, {"norm_eps": float("nan")}, "norm_eps must be a number"),
    ],
)
def test_sizes_that_cannot_work_are_refused(config, change, complaint):
    """A config that no graph can be made of raises ValueError with the size's name."""
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(config, **change)


def test_configs_are_frozen():
    """Sizes never change after a model is built."""
    for family in FAMILIES.values():
        assert family.config.__dataclass_params__.frozen


_LOADER = """
import sys
from pathlib import Path
from weft_export.export import load
from weft_export.options import ExportOptions
load(Path(sys.argv[1]), ExportOptions(), filled=False)
print(*sys.modules)
from weft_export.converters.convert import converter_of
converter_of({"model_type": "vit"})
print(*sys.modules)
"""


@pytest.mark.slow
def test_what_an_export_does_not_need_is_not_imported(tmp_path):
    """Of a checkpoint of ours it imports the family that is named, no converter of others', and nothing that rounds.

    Of a directory of others, it imports the one module that converts its model_type. What reads a kind of tokenizers,
    or weights that are quantised already, is imported when the directory has it.
    """
    checkpoint = save_tiny("tiny-image", tmp_path)
    done = subprocess.run([sys.executable, "-c", _LOADER, checkpoint], capture_output=True, text=True, check=True)
    imported, with_others = (set(line.split()) for line in done.stdout.splitlines())

    families = {family.model.__module__ for family in FAMILIES.values()}
    assert {"weft_export.families.vit"} == families & imported
    needless = ("weft_export.converters", "weft_export.quantization.choice")
    assert [] == [name for name in imported if name.startswith(needless)]
    assert sum(name.startswith("weft_export.") for name in imported) <= 100
    converters = {f"weft_export.converters.{name}" for name in MODULE_OF.values()}
    assert {"weft_export.converters.vit"} == converters & with_others
    unread = {"quantized.awq", "quantized.compressed", "quantized.gptq", "text.unigram", "text.words"}
    assert set() == {f"weft_export.converters.{name}" for name in unread} & with_others
    assert sum(name.startswith("weft_export.") for name in with_others) <= 145


@torch.inference_mode()
def test_candidates_are_the_best_logits():
    """Candidates are the best logits in descending order, with their ids and the exact normaliser."""
    logits = torch.randn(5, 50) * 20
    best, ids, logsumexp, same = candidates(logits, 8)

    assert torch.equal(same, logits)
    assert torch.equal(best, logits.sort(dim=-1, descending=True).values[:, :8])
    assert torch.equal(best, logits.gather(1, ids))
    torch.testing.assert_close(logsumexp, logits.logsumexp(dim=-1))
