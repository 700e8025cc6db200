"""Adapters that PEFT saved of decoders that see, as they are served: answers about pictures are PEFT's own."""

import asyncio
import json

import pytest
from adapted import DECODER, RANK, adapted, linears
from cell_kinds import CELLS, made_cells
from sight_kinds import DECODING, SEEING, SPLITTING, TILING, as_messages, chat_of, made_seeing, pictures, their_tokens
from stretch_kinds import GEMMA3, made_stretches
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
KINDS = [LLAVA, TILING[0], *SPLITTING, *CELLS, GEMMA3]


def made(kind, directory):
    """Write a random model with its processor; return both."""
    if kind in CELLS:
        return made_cells(kind, 1, directory)
    return made_stretches(kind, 1, directory) if kind is GEMMA3 else made_seeing(kind, 1, directory)


def exported(directory, golden=None, kind=LLAVA):
    """Write a random model, and its bundle with places for adapters. Return the bundle, their model and processor."""
    theirs, processor = made(kind, directory / "saved")
    bundle = directory / "models" / "m" / "1"
    export_checkpoint(directory / "saved", bundle, ExportOptions(adapters=RANK, max_tokens=MAX_TOKENS, golden=golden))
    return bundle, theirs, processor


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name, marks=[pytest.mark.long] * bool(at)) for at, kind in enumerate(KINDS)]
)
def test_an_adapter_of_a_decoder_that_sees_answers_as_peft(kind, tmp_path):
    """24 greedy tokens to two pictures and to one, beside the base, with what is kept of prompts and pictures."""
    bundle, theirs, processor = exported(tmp_path, str(picture_in(tmp_path)), kind)
    shown = pictures(3, 1)
    alone = [{"role": "user", "content": [{"type": "text", "text": "Say."}, {"type": "image", "image": shown[2]}]}]
    chats = [chat_of(shown[:2]), alone]
    base = [their_tokens(theirs, processor, each) for each in chats]
    of_peft = adapted(theirs, tmp_path / "formal", size=0.6, target_modules=linears(theirs, inside=DECODER))
    export_adapter(tmp_path / "formal", bundle, tmp_path / "saved")
    expected = [their_tokens(of_peft.base_model.model, processor, each) for each in chats]
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
