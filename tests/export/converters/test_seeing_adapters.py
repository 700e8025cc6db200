"""Adapters that PEFT saved of decoders that see, as they are served: answers about pictures are PEFT's own."""

import asyncio
import json

import pytest
import query_kinds
import test_stretches
import torch
from adapted import DECODER, RANK, adapted, linears
from cell_kinds import CELLS, made_cells
from query_kinds import BLIP2, made_queries
from sight_kinds import (
    DECODING,
    NEW_TOKENS,
    SEEING,
    SPLITTING,
    TILING,
    as_messages,
    chat_of,
    made_seeing,
    pictures,
    their_inputs,
)
from stretch_kinds import GEMMA3, STRETCHES, made_stretches
from test_tiles import file_of

from loaded import Loaded, ask
from weft_export.adapters.export_adapter import export_adapter
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import ADAPTER_FILE
from weft_server.errors import RequestError

MAX_TOKENS = 700
LLAVA = SEEING[0]
# One of each way in which a picture stands in a prompt. All but the first are for the long target.
KINDS = [LLAVA, TILING[0], *SPLITTING, *CELLS, *STRETCHES, BLIP2]


def made(kind, directory):
    """Write a random model with its processor; return both."""
    if kind in CELLS:
        return made_cells(kind, 1, directory)
    if kind in STRETCHES:
        return made_stretches(kind, 1, directory)
    return made_queries(1, directory) if kind is BLIP2 else made_seeing(kind, 1, directory)


def chats_of(kind, shown):
    """Two chats about other pictures: about two and about one, or about one each."""
    if kind is BLIP2:
        return [query_kinds.asked(each, "Question: what? Answer:") for each in shown[:2]]
    if kind in STRETCHES and kind is not GEMMA3:
        return [test_stretches.asked(shown[:2]), test_stretches.asked(shown[2:])]
    alone = [{"role": "user", "content": [{"type": "text", "text": "Say."}, {"type": "image", "image": shown[2]}]}]
    return [chat_of(shown[:2]), alone]


def their_tokens(kind, theirs, processor, chat):
    """What their model writes greedily: NEW_TOKENS at most."""
    if kind is BLIP2:
        said = {part["type"]: part.get("image", part.get("text")) for part in chat[0]["content"]}
        inputs = query_kinds.inputs_of(processor, said["image"], said["text"])
    else:
        inputs = test_stretches.inputs_of(kind, processor, chat) if kind in STRETCHES else their_inputs(processor, chat)
    with torch.inference_mode():
        found = theirs.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS)
    return found[0, inputs["input_ids"].shape[1] :].tolist()


def exported(directory, golden=None, kind=LLAVA):
    """Write a random model, and its bundle with places for adapters. Return the bundle, their model and processor."""
    theirs, processor = made(kind, directory / "saved")
    bundle = directory / "models" / "m" / "1"
    longest = 96 if kind is BLIP2 else MAX_TOKENS
    export_checkpoint(directory / "saved", bundle, ExportOptions(adapters=RANK, max_tokens=longest, golden=golden))
    return bundle, theirs, processor


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name, marks=[pytest.mark.long] * bool(at)) for at, kind in enumerate(KINDS)]
)
def test_an_adapter_of_a_decoder_that_sees_answers_as_peft(kind, tmp_path):
    """24 greedy tokens to two chats about pictures, beside the base, with what is kept of prompts and pictures."""
    bundle, theirs, processor = exported(tmp_path, str(picture_in(tmp_path)), kind)
    chats = chats_of(kind, pictures(3, 1))
    base = [their_tokens(kind, theirs, processor, each) for each in chats]
    of_peft = adapted(theirs, tmp_path / "formal", size=0.6, target_modules=linears(theirs, inside=DECODER))
    export_adapter(tmp_path / "formal", bundle, tmp_path / "saved")
    expected = [their_tokens(kind, of_peft.base_model.model, processor, each) for each in chats]
    asked = [as_messages(each) for each in chats]

    async def run():
        async with Loaded(bundle, slots=3, prefix_cache_mb=8) as model:
            named = {"name": model.name, "adapter": "formal"}
            found = []
            for _ in range(2):
                answers = [ask(model, messages=each, decoding=DECODING) for each in asked]
                answers += [ask(model, model=named, messages=each, decoding=DECODING) for each in asked]
                found.append([list(each.completion.token_ids) for each in await asyncio.gather(*answers)])
            return found

    assert [[*base, *expected]] * 2 == asyncio.run(run())
    assert base != expected


def picture_in(directory):
    """A picture that a golden request shows."""
    path = directory / "shown.png"
    path.write_bytes(file_of(pictures(1, 7)[0]))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("question", [None, "And what is here?"], ids=["own", "other"])
def test_an_adapter_is_asked_about_the_picture_of_its_bundle(question, tmp_path):
    """A server has no other: it would refuse the adapter."""
    bundle, theirs, _ = exported(tmp_path, str(picture_in(tmp_path)))
    adapted(theirs, tmp_path / "formal", size=0.6, target_modules=linears(theirs, inside=DECODER))
    report = export_adapter(tmp_path / "formal", bundle, tmp_path / "saved", golden=question)
    golden = json.loads((bundle / "bundle.json").read_text())["golden"]
    told = json.loads((report.directory / ADAPTER_FILE).read_text())["golden"]
    assert (golden["imagePath"], question or golden["question"]) == (told["imagePath"], told["question"])
    assert golden["tokenIds"] != told["tokenIds"]
    with pytest.raises(ExportError, match="the bundle's own picture is asked"):
        export_adapter(tmp_path / "formal", bundle, tmp_path / "saved", golden=str(tmp_path / "shown.png"), force=True)

    async def run():
        async with Loaded(bundle) as model:
            named = {"name": model.name, "adapter": "formal"}
            messages = {"turns": [{"role": "user", "content": "a"}]}
            await ask(model, model=named, messages=messages, decoding=DECODING)
            with pytest.raises(RequestError, match="adapter"):
                await ask(model, model=named | {"adapter": "casual"}, messages=messages, decoding=DECODING)

    asyncio.run(run())


@pytest.mark.slow
def test_what_changes_the_way_a_model_sees_is_refused_by_name(tmp_path):
    """Features are kept for all who show a picture. PEFT's own names of products are in what sees, too."""
    bundle, theirs, _ = exported(tmp_path)
    for name, targets in {
        "vision_tower": ["q_proj", "v_proj"],
        "multi_modal_projector": r".*(language_model.*q_proj|multi_modal_projector\.linear_1)",
    }.items():
        model = adapted(theirs, tmp_path / name, target_modules=targets)
        with pytest.raises(CheckpointError, match=rf"the adapter changes .*{name}.*exclude_modules"):
            export_adapter(tmp_path / name, bundle, tmp_path / "saved")
        model.unload()
