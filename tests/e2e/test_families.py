"""Each kind of family through the real process: the same RPCs, the same metrics, and what each one attended to."""

import io
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from samples import sample
from tiny import CHECKPOINTS

import weft
from process import ServerProcess
from weft_export.checkpoints.sound import wav_of

pytestmark = pytest.mark.e2e

CAN_EXPLAIN = [name for name in CHECKPOINTS if sample(name).model.attention_heads]
TEXT = "the big cat sees a red bird"


@pytest.fixture(scope="module")
def family_server(whole_tiny_repository):
    """One real server over a tiny model of each kind that this run has."""
    with ServerProcess(whole_tiny_repository) as server:
        server.wait_for("ready", timeout=120)
        yield server


@pytest.fixture
def family_client(family_server):
    """A client of that server."""
    with weft.Client(family_server.target, timeout=60) as client:
        yield client


def a_picture():
    """Noise, as a PNG."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(3).integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def a_recording():
    """Noise, as a WAV."""
    return wav_of(0.1 * torch.randn(1500, generator=torch.Generator().manual_seed(3)), 4000)


def ask(client, model, **options):  # noqa: C901, PLR0911, PLR0912 - a line for each task
    """Ask a model what its task is, with one fixed input."""
    name = {"model": model.name, **options}
    decoding = {"decoding": weft.Decoding(max_new_tokens=6)}
    match model.task:
        case weft.Task.TRANSLATE:
            prefix = model.prefixes[0] if model.prefixes else ""
            return client.translate(prefix + TEXT, **decoding, **name)
        case weft.Task.CAPTION:
            return client.caption(a_picture(), **decoding, **name)
        case weft.Task.ANSWER:
            return client.answer(a_picture(), TEXT, **decoding, **name)
        case weft.Task.TRANSCRIBE:
            language = {"language": "en"} if model.source_languages else {}
            return client.transcribe(a_recording(), **language, **decoding, **name)
        case weft.Task.TRANSCRIBE_CTC:
            return client.transcribe(a_recording(), **name)
        case weft.Task.GENERATE:
            return client.generate(TEXT, **decoding, **name)
        case weft.Task.CLASSIFY_IMAGE:
            return client.classify(image=a_picture(), **name)
        case weft.Task.MATCH:
            return client.classify(image=a_picture(), labels=TEXT.split(), **name)
        case weft.Task.CLASSIFY_TEXT:
            return client.classify(TEXT, **name)
        case weft.Task.TAG:
            return client.tag(TEXT, **name)
        case weft.Task.EXTRACT:
            return client.extract(TEXT, "the cat", top_k=3, **name)
        case weft.Task.FILL_MASK:
            return client.fill_mask(f"the {model.mask_token} sees a {model.mask_token}", **name)
        case weft.Task.EMBED_TEXT | weft.Task.EMBED_IMAGE:
            given = {"images": a_picture()} if model.task == weft.Task.EMBED_IMAGE else {"texts": TEXT}
            return client.embed(**given, **name)
    raise AssertionError(model.task)


def what_is_said(answer):
    """An answer's text, labels or tokens: what explaining leaves as it is."""
    names = ("text", "token_ids", "labels", "tokens", "vectors", "answers", "masks")
    return [getattr(answer, name) for name in names if hasattr(answer, name)]


def test_every_family_is_ready(family_client, whole_tiny_repository):
    """A server loads one bundle of each kind, and each one reproduces its golden answer."""
    models = family_client.list_models()

    assert {path.name for path in whole_tiny_repository.iterdir()} == {model.name for model in models}
    assert {""} == {model.error for model in models}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_family_answers_and_is_counted(family_server, family_client, name):
    """Each model answers through its task's RPC, says which it is, and its requests stand in the metrics."""
    counted = partial(family_server.metric, "weft_requests_total", model=name, code="OK")
    before = counted()
    answer = ask(family_client, family_client.get_model(name))

    assert weft.ResolvedModel(name, 1) == answer.model
    assert answer.usage.input_tokens > 0
    assert answer.alignment is None
    # A call is counted when its answer is out, which its caller may have by then.
    family_server.wait_until(lambda: before + 1 == counted())


@pytest.mark.parametrize("name", CAN_EXPLAIN)
def test_a_family_explains_each_layer_and_head(family_client, name):
    """By default, for each layer and for each head, rows are distributions over the source; answers stay the same."""
    model = family_client.get_model(name)
    plain = ask(family_client, model)
    asked = [True, *(weft.Explain(layer=layer) for layer in range(len(model.attention_heads)))]
    asked.append(weft.Explain(layer=len(model.attention_heads) - 1, head=model.attention_heads[-1] - 1))

    for explain in asked:
        answer = ask(family_client, model, explain=explain)
        alignment = answer.alignment
        width = alignment.grid_rows * alignment.grid_columns or len(alignment.source_tokens) or alignment.num_columns

        assert width > 0
        assert len(alignment.target_tokens) == len(alignment.weights) == len(alignment.source_mass)
        assert {width} == {len(row) for row in alignment.weights}
        assert all(pytest.approx(1, abs=1e-5) == sum(row) for row in alignment.weights)
        assert what_is_said(plain) == what_is_said(answer)
        if explain is not True:
            assert (explain.layer, explain.head) == (alignment.layer, alignment.head)


@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name not in CAN_EXPLAIN])
def test_a_family_without_attention_says_so(family_client, name):
    """Where nothing attends, explain is refused with its own reason, and nothing else is."""
    with pytest.raises(weft.Error) as error:
        ask(family_client, family_client.get_model(name), explain=True)

    assert "CANNOT_EXPLAIN" == error.value.reason


@pytest.mark.parametrize("name", CAN_EXPLAIN)
def test_a_layer_or_head_that_is_not_there_is_refused(family_client, name):
    """A layer or head out of range, or a head of no layer, is the caller's mistake, named by its field."""
    model = family_client.get_model(name)
    wrong = {
        "explain.layer": weft.Explain(layer=len(model.attention_heads)),
        "explain.head": weft.Explain(layer=0, head=model.attention_heads[0]),
    }
    for field, explain in (*wrong.items(), ("explain.head", weft.Explain(head=0))):
        with pytest.raises(weft.InvalidRequest) as error:
            ask(family_client, model, explain=explain)

        assert [field] == [violation.field for violation in error.value.field_violations]
