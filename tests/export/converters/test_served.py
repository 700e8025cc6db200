"""Every kind as it is served: its directory becomes a bundle, and an engine in this process answers as transformers."""

import asyncio
import io
from importlib import import_module

import numpy as np
import pytest
import torch
import transformers
from captioner_kinds import CAPTIONERS
from cell_kinds import CELLS
from decoder_kinds import BODIES, DECODERS
from encoder_kinds import CLASSIFIERS, EMBEDDERS, EXTRACTORS, FILLERS, TAGGERS
from hf_models import LOGITS, VOCAB, made, their_greedy, token_rows
from hybrid_kinds import STATE_SPACES
from picture_kinds import (
    CLIP_ALONE,
    CLIP_TEXTS_ALONE,
    DINOV2,
    PICTURES,
    REGISTERS,
    SIGLIP_ALONE,
    SIGLIP_TEXTS_ALONE,
    VIT_BODY,
    WHOLE_CLIP,
    WHOLE_SIGLIP,
)
from PIL import Image
from prompted_kinds import PROMPTED
from query_kinds import BLIP2
from question_kinds import ASKING
from seq2seq_kinds import SEQ2SEQ
from sight_kinds import SEEING, SPLITTING, TILING
from stretch_kinds import STRETCHES
from test_captioners import their_logits, with_processor
from test_ctc import KINDS as CTC
from test_led import LED
from test_moonshine import MOONSHINE
from test_parakeet import ARCHITECTURE as PARAKEET
from test_pictures import made_with_processor
from test_whisper import WHISPER

from loaded import Loaded, ask
from weft_export.converters.registry import all_converters
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

LENGTHS = (7, 1, 23, 12, 30, 3)
NEW_TOKENS, TOP, PAIR = 64, 20, 2
NEAR = 2e-5
"""Two tokens whose logits are nearer than this may change places by rounding."""
PROBABILITIES = 2e-5
SIDES = ((51, 77), (90, 33), (64, 64))
"""Heights and widths of pictures, none of which is a model's."""
SHARDS = "50KB"
# What CI runs of all that. It has generators, translators and classifiers of pictures in other files.
FEW = {"trocr", "debertav2-tags"}

# Classes that transformers has by another name, which test_decoders.py holds to it.
OTHER_NAMES = {"Ernie4_5_ForCausalLM"}
# Of libraries of their own: test_late_interaction.py and test_rwkv_file.py.
COLBERT = {"HF_ColBERT"}
RWKV = {"RWKV7ForCausalLM"}


def test_every_kind_that_is_converted_has_a_row():
    """A new converter is held to transformers, or this fails. Some have tests of their own."""
    kinds = (
        *DECODERS,
        *STATE_SPACES,
        *SEQ2SEQ,
        *CAPTIONERS,
        *SEEING,
        *TILING,
        *SPLITTING,
        *CELLS,
        *STRETCHES,
        BLIP2,
        *ASKING,
        *PROMPTED,
        *CLASSIFIERS,
        *TAGGERS,
        *EXTRACTORS,
        *FILLERS,
        *EMBEDDERS,
        *PICTURES,
        WHOLE_CLIP,
        CLIP_ALONE,
        CLIP_TEXTS_ALONE,
        SIGLIP_ALONE,
        SIGLIP_TEXTS_ALONE,
        WHOLE_SIGLIP,
        *BODIES,
        VIT_BODY,
        DINOV2,
        REGISTERS,
        WHISPER,
        MOONSHINE,
        LED,
    )
    converted = {name for converter in all_converters() for name in converter.architectures}
    hearing = {architecture for architecture, _ in CTC.values()} | {PARAKEET}
    assert converted == {kind.architecture for kind in kinds} | hearing | OTHER_NAMES | COLBERT | RWKV


def rows_of(kinds):
    """One row a kind; all but a few are for the long target."""
    return [pytest.param(kind, id=kind.name, marks=[] if kind.name in FEW else pytest.mark.long) for kind in kinds]


def answers(directory, requests, **options):
    """Export a directory, serve it, and ask everything at once."""
    bundle = directory.parent / "models" / "model" / "1"
    # The graphs that explain and score are not asked.
    export_checkpoint(directory, bundle, ExportOptions(no_explain=True, no_score=True, **options))

    async def run():
        async with Loaded(bundle, slots=len(requests) + 1) as model:
            return await asyncio.gather(*(ask(model, **request) for request in requests))

    return asyncio.run(run())


def greedy(inputs):
    """Requests for 64 tokens of each input, with what was nearly written: plain ones, and those that repeat no pair."""
    plain = common_pb2.Decoding(greedy={}, max_new_tokens=NEW_TOKENS)
    varied = common_pb2.Decoding(greedy={}, max_new_tokens=NEW_TOKENS, penalties={"no_repeat_ngram_size": PAIR})
    asked = [{**each, "decoding": decoding} for each in inputs for decoding in (plain, varied)]
    return [{**each, "return_scores": True, "num_top_tokens": TOP} for each in asked]


def check_all(written, answers_, given, log_probs):
    """Hold the answers to `greedy` to generate()'s; of these two may hang on a near tie.

    written: makes what generate() answers to the input of a number, with settings.
    given: the tokens before the answer, for each input.
    log_probs: makes the model's own of a number and tokens: [tokens, vocab].
    """
    near, varied = 0, []
    for number, answer in enumerate(each.completion for each in answers_):
        at, rule = number // 2, number % 2
        expected = written(at, no_repeat_ngram_size=PAIR * rule)
        near += check_written(expected, answer, given[at], lambda tokens, at=at: log_probs(at, tokens), rule)
        varied += [expected] * rule
    assert near <= 2
    # Otherwise nothing is proved: no answer is another's, and they have many tokens.
    assert len(varied) == len({tuple(tokens) for tokens in varied})
    assert len({token for tokens in varied for token in tokens}) >= NEW_TOKENS / 4


def check_written(expected, answer, given, log_probs, rule):
    """Hold one answer to what generate() wrote; return whether generate() nearly took another token."""
    tokens, own = list(answer.token_ids), log_probs(list(answer.token_ids))
    for theirs, top in zip(own, answer.top_tokens, strict=True):
        assert theirs[list(top.token_ids)].tolist() == pytest.approx(list(top.log_probs), abs=LOGITS)
    best, second = ruled(given, expected, log_probs(expected), rule).topk(2).values.unbind(-1)
    if (best - second).min() > NEAR:
        assert expected == tokens
        return False
    # Another of two equals may have been followed. Each token is as good as the best all the same.
    own = ruled(given, tokens, own, rule)
    assert (own.max(dim=-1).values - own[range(len(tokens)), tokens]).max() <= NEAR
    return True


def ruled(given, tokens, log_probs, rule):
    """Log-probabilities of which no pair is repeated, if that is the rule."""
    if not rule:
        return log_probs
    processor = transformers.NoRepeatNGramLogitsProcessor(PAIR)
    before = [torch.tensor([[*given, *tokens[:place]]]) for place in range(len(tokens))]
    return torch.cat([processor(ids, log_probs[place : place + 1]) for place, ids in enumerate(before)])


def ids_of(row):
    """Token ids as a request has them."""
    return {"token_ids": common_pb2.TokenIds(ids=row)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", rows_of([*DECODERS, *STATE_SPACES]))
def test_a_generator_is_served_as_transformers_generates(kind, tmp_path):
    """The same 64 greedy tokens from prompts of other lengths at once, and log-probabilities within 1e-4."""
    theirs = made(kind, 1, tmp_path / "theirs", max_shard_size=SHARDS)
    rows = token_rows(VOCAB, LENGTHS, 1)

    def log_probs(at, tokens):
        logits = theirs(torch.tensor([[*rows[at], *tokens]])).logits[0]
        return logits[len(rows[at]) - 1 : -1].log_softmax(-1)

    def written(at, **settings):
        return their_greedy(theirs, {"input_ids": torch.tensor([rows[at]])}, NEW_TOKENS, **settings)

    found = answers(tmp_path / "theirs", greedy(map(ids_of, rows)), max_tokens=96)
    with torch.inference_mode():
        check_all(written, found, rows, log_probs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", rows_of(SEQ2SEQ))
def test_a_translator_is_served_as_transformers_generates(kind, tmp_path):
    """The same 64 greedy tokens for sources of other lengths at once, and log-probabilities within 1e-4."""
    theirs = made(kind, 1, tmp_path / "theirs", max_shard_size=SHARDS)
    rows = [[*row[:-1], theirs.config.eos_token_id] for row in token_rows(VOCAB, LENGTHS, 1)]
    start = theirs.generation_config.decoder_start_token_id

    def log_probs(at, tokens):
        target = torch.tensor([[start, *tokens[:-1]]])
        return theirs(input_ids=torch.tensor([rows[at]]), decoder_input_ids=target).logits[0].log_softmax(-1)

    def written(at, **settings):
        return their_greedy(theirs, {"input_ids": torch.tensor([rows[at]])}, NEW_TOKENS, **settings)

    found = answers(tmp_path / "theirs", greedy(map(ids_of, rows)), max_tokens=80)
    with torch.inference_mode():
        check_all(written, found, [[start]] * len(rows), log_probs)


def pictures(channels):
    """Odd pictures, and the files of them."""
    noise = np.random.default_rng(0)
    drawn = [Image.fromarray(noise.integers(0, 256, (*sides, channels), np.uint8).squeeze()) for sides in SIDES]
    files = []
    for picture in drawn:
        file = io.BytesIO()
        picture.save(file, "PNG")
        files.append({"image": common_pb2.Image(data=file.getvalue())})
    return drawn, files


def their_pixels(directory, drawn):
    """What their processor makes of pictures: [pictures, channels, height, width]."""
    module = import_module("transformers.models.vit.image_processing_pil_vit")
    processor = module.ViTImageProcessorPil.from_pretrained(directory)
    processor.do_convert_rgb = False
    return processor(drawn, return_tensors="pt").pixel_values


@pytest.mark.slow
@pytest.mark.parametrize("kind", rows_of(CAPTIONERS))
def test_a_captioner_is_served_as_transformers_generates(kind, tmp_path):
    """From pictures of other shapes at once: the same 64 greedy tokens, log-probabilities within 1e-4, and searches."""
    theirs = made(kind, 1, tmp_path / "theirs", max_shard_size=SHARDS)
    with_processor(tmp_path / "theirs")
    drawn, files = pictures(3)
    pixels = their_pixels(tmp_path / "theirs", drawn)
    asked = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}
    start = theirs.generate(pixel_values=pixels[:1], **asked)[0, 0].item()

    def log_probs(at, tokens):
        target = torch.tensor([[start, *tokens[:-1]]])
        return their_logits(theirs, pixels[at : at + 1], target)[0].log_softmax(-1)

    def written(at, **settings):
        return theirs.generate(pixel_values=pixels[at : at + 1], **asked, **settings)[0].tolist()[1:]

    def score(at):
        found = {"num_beams": 4, "output_scores": True, "return_dict_in_generate": True}
        return theirs.generate(pixel_values=pixels[at : at + 1], **asked | found).sequences_scores.item()

    search = common_pb2.Decoding(beams={"num_beams": 4}, max_new_tokens=NEW_TOKENS)
    searches = [{**each, "decoding": search} for each in files]
    found = answers(tmp_path / "theirs", [*greedy(files), *searches], max_tokens=80)
    searched = [each.completion for each in found[-len(files) :]]
    with torch.inference_mode():
        check_all(written, found[: -len(files)], [[start]] * len(drawn), log_probs)
        # Of two that are nearly equal either may be found, and then the scores are too.
        for at, answer in enumerate(searched):
            tokens = list(answer.token_ids)
            total = log_probs(at, tokens)[range(len(tokens)), tokens].sum().item()
            assert [pytest.approx(answer.score, abs=LOGITS)] * 2 == [score(at), total / len(tokens)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", rows_of([*CLASSIFIERS, *TAGGERS]))
def test_labels_of_texts_are_served_as_transformers_gives_them(kind, tmp_path):
    """Probabilities within 2e-5 for texts of other lengths at once; of a tagger, those of each token's label."""
    theirs = made(kind, 1, tmp_path / "theirs", max_shard_size=SHARDS)
    rows = token_rows(VOCAB, LENGTHS, 1)
    found = answers(tmp_path / "theirs", [ids_of(row) for row in rows])
    for row, answer in zip(rows, found, strict=True):
        with torch.inference_mode():
            expected = theirs(input_ids=torch.tensor([row])).logits[0].softmax(-1)
        for token, label in zip(expected, answer.tokens, strict=True) if kind in TAGGERS else ():
            assert token[label.index].item() == pytest.approx(label.score, abs=PROBABILITIES)
            assert token.max().item() == pytest.approx(label.score, abs=PROBABILITIES)
        for label in answer.labels if kind in CLASSIFIERS else ():
            assert expected[label.index].item() == pytest.approx(label.score, abs=PROBABILITIES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", rows_of(PICTURES))
def test_labels_of_pictures_are_served_as_transformers_gives_them(kind, tmp_path):
    """From pictures of other shapes at once: probabilities within 2e-5."""
    theirs, random_pixels = made_with_processor(kind, 1, tmp_path / "theirs")
    drawn, files = pictures(random_pixels.shape[1])
    pixels = their_pixels(tmp_path / "theirs", drawn)
    assert random_pixels.shape == pixels.shape
    with torch.inference_mode():
        expected = theirs(pixels).logits.softmax(dim=-1)
    found = answers(tmp_path / "theirs", [{**file, "top_k": expected.shape[1]} for file in files])
    for row, answer in zip(expected, found, strict=True):
        assert len(row) == len(answer.labels)
        for label in answer.labels:
            assert row[label.index].item() == pytest.approx(label.score, abs=PROBABILITIES)
