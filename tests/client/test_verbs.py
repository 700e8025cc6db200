"""Every verb: what goes in reaches the server, what the server says comes out typed; sync and asyncio alike."""

import asyncio
import inspect
import types
import typing
from collections.abc import AsyncIterable
from dataclasses import replace
from importlib import import_module

import pytest

import weft
from fakes import fake_server
from weft._verbs.table import methods_on
from weft_proto.v1 import common_pb2 as common
from weft_proto.v1 import model_pb2 as model
from weft_proto.v1 import tokenization_pb2
from weft_proto.v1.methods import METHODS

DECODING = weft.Decoding(
    max_new_tokens=7,
    min_new_tokens=2,
    stop=("\n", "ñ"),
    strategy=weft.Sampling(temperature=0.5, top_k=4, top_p=0.75, seed=9),
)
COMMON = {"model": "m", "model_version": 3, "request_id": "r-1"}
VERBS = [
    ("translate", ("we are here",), {"explain": True, "return_scores": True, "decoding": DECODING, **COMMON}),
    ("translate", ([5, 6],), {"source_language": "en", "target_language": "es"}),
    ("translate", ("We are. You are.",), {"split_sentences": True}),
    ("translate", ("we are here",), {"explain": weft.Explain(layer=1, head=0)}),
    ("caption", (b"12345",), {"explain": True, **COMMON}),
    ("answer", (b"12345", "what is this?"), {"explain": True, **COMMON}),
    ("answer", (b"12345", [5, 6]), {"decoding": DECODING}),
    ("transcribe", (b"12345",), {"language": "en", "to_english": True, "explain": True, **COMMON}),
    ("classify", ("a text",), {"top_k": 1, **COMMON}),
    ("classify", ([5, 6],), {}),
    ("classify", ("a question",), {"text_pair": "a passage"}),
    ("classify", ("a text",), {"threshold": 0.25}),
    ("classify", (), {"image": b"png", "labels": ["cat", "dog"], "label_text": "a {}"}),
    ("classify", (), {"image": b"12", "explain": True}),
    ("classify", ("a text",), {"explain": weft.Explain(layer=2)}),
    ("tag", ("we are in LIMA",), {"explain": True, **COMMON}),
    ("tag", ([5, 6],), {}),
    ("extract", ("a text", "a question"), {"top_k": 2, "max_answer_tokens": 3, "allow_no_answer": True, **COMMON}),
    ("extract", ("a text", "a question"), {"max_seq_len": 20, "doc_stride": 0}),
    ("extract", ("a text", "a question"), {"explain": True}),
    ("fill_mask", ("a [MASK] b [MASK]",), {"top_k": 2, "targets": ["x", "y", "z"], **COMMON}),
    ("fill_mask", ("a [MASK]",), {"explain": True}),
    ("embed", (["a b", [5, 6]],), {"dimensions": 2, **COMMON}),
    ("embed", ("a text",), {"explain": True}),
    ("embed", (), {"images": [b"12", b"345"]}),
    ("generate", ("a b c",), {"decoding": DECODING, **COMMON}),
    ("generate", ([1, 2, 3],), {"return_scores": True, "explain": True}),
    ("generate", (), {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b c"}], **COMMON}),
    ("score", ("a b c", "d e"), {"num_top_tokens": 2, "source_language": "en", "target_language": "es", **COMMON}),
    ("score", ([1, 2], [3]), {"model": "m"}),
    ("score", (b"12345", "a cat"), {"model": "m"}),
    ("score", (b"fLaC5", "a cat"), {"model": "m", "source_language": "en"}),
    ("tokenize", ("a b c",), {"side": "output", "source_language": "en", "target_language": "es", **COMMON}),
    ("tokenize", (), {"messages": [{"role": "user", "content": "b c"}], "model": "m", "count_only": True}),
    ("detokenize", ([3, 4],), {"side": "input", **COMMON}),
    ("list_models", (), {}),
    ("get_model", ("en-es",), {}),
    ("get_model", ("topics", 2), {}),
    ("health", (), {}),
]
STREAMS = [verb for verb in VERBS if verb[0] in {"translate", "caption", "answer", "transcribe", "generate"}]


def ask(target, verb, args, options):
    """The answer of the blocking client."""
    with weft.Client(target) as client:
        return getattr(client, verb)(*args, **options)


def ask_async(target, verb, args, options):
    """The answer of the asyncio client."""

    async def run():
        async with weft.AsyncClient(target) as client:
            return await getattr(client, verb)(*args, **options)

    return asyncio.run(run())


def stream_async(target, verb, args, options):
    """The deltas and the result of an asyncio stream."""

    async def run():
        async with weft.AsyncClient(target) as client, getattr(client, f"stream_{verb}")(*args, **options) as stream:
            return [delta async for delta in stream], stream.result

    return asyncio.run(run())


@pytest.mark.parametrize(("verb", "args", "options"), VERBS)
def test_both_clients_ask_and_answer_the_same(server, verb, args, options):
    """The asyncio client sends the very request of the blocking one, and returns the very answer."""
    assert ask(server.target, verb, args, options) == ask_async(server.target, verb, args, options)
    if verb != "health":
        first, second = server.servicer.seen
        assert (first.method, first.request) == (second.method, second.request)


@pytest.mark.parametrize(("verb", "args", "options"), STREAMS)
def test_a_stream_ends_in_the_unary_answer(server, verb, args, options):
    """Deltas joined are the text, none is empty, and the result equals the unary call's; sync and asyncio."""
    whole = ask(server.target, verb, args, options)
    with weft.Client(server.target) as client:
        stream = getattr(client, f"stream_{verb}")(*args, **options)
        deltas = list(stream)

    assert whole.text == "".join(deltas)
    assert all(deltas)
    assert whole == stream.result
    assert (deltas, whole) == stream_async(server.target, verb, args, options)


def test_a_score_is_read_whole(client, server, tmp_path):
    """Sources and targets stand in their fields, and the answer has each token with its most probable rivals."""
    answer = client.score("a b c", "d e", model="m", num_top_tokens=2)
    (tmp_path / "cat.png").write_bytes(b"12345")
    client.score(tmp_path / "cat.png", [7], model="m")

    first, second = (seen.request for seen in server.servicer.seen)
    assert ("a b c", "d e", 2) == (first.text, first.target_text, first.num_top_tokens)
    assert (b"12345", [7]) == (second.image.data, list(second.target_ids.ids))
    rivals = (weft.TopToken(0, "0", -0.5), weft.TopToken(1, "1", -1.5))
    assert ((-1.5, (0, 1), (-0.5, -1.0), ("d", "e"), (rivals, rivals))) == (
        answer.total,
        answer.token_ids,
        answer.token_log_probs,
        answer.tokens,
        answer.top_tokens,
    )
    assert weft.ResolvedModel("m", 1) == answer.model


@pytest.mark.parametrize("given", [{"target": b"raw"}, {"target": 3}, {"source": 4.5}, {"options": {"explain": True}}])
def test_what_cannot_be_scored_is_refused_here(client, server, given):
    """Nothing is sent for a target or a source of a wrong type, or an option that scoring has not."""
    with pytest.raises((weft.InvalidRequest, TypeError)):
        client.score(given.get("source", "a"), given.get("target", "b"), model="m", **given.get("options", {}))
    assert not server.servicer.seen


def test_tokens_are_read_whole(client, server):
    """Each token has its id, its piece and its place, and the ids can be sent again."""
    text = "a wet cat"
    answer = client.tokenize(text, model="m", side="input")
    back = client.detokenize(answer.token_ids, model="m")

    cut, joined = (seen.request for seen in server.servicer.seen)
    assert (text, tokenization_pb2.SIDE_INPUT) == (cut.text, cut.side)
    assert ([1, 2, 3, 0], tokenization_pb2.SIDE_UNSPECIFIED) == (list(joined.token_ids), joined.side)
    assert (4, weft.Token(2, "wet", 2, 5, added=False)) == (answer.num_tokens, answer.tokens[1])
    assert ["a", "wet", "cat"] == [text[each.start : each.end] for each in answer.tokens if not each.added]
    assert ("w1 w2 w3 w0", ("w1", "w2", "w3", "w0")) == (back.text, back.tokens)
    assert weft.ResolvedModel("m", 1) == answer.model == back.model


WEATHER = weft.Function("weather", "Tells it.", {"type": "object"})
CHAT = [{"role": "user", "content": "hi"}]


def test_functions_calls_and_results_are_carried(client, server):
    """What the model is told of, what it called, and what that gave, each in its field."""
    call = weft.FunctionCall("c1", "weather", "{}")
    said = {"role": "assistant", "content": "", "calls": (call,)}
    told = {"role": "tool", "content": "rain", "call_id": call.id}
    client.generate(messages=[*CHAT, said, told], functions=[WEATHER, weft.Function("now")], model="m")

    messages = server.servicer.seen[0].request.messages
    functions = [(each.name, each.description, each.parameters) for each in messages.functions]
    assert [("weather", "Tells it.", '{"type": "object"}'), ("now", "", "")] == functions
    _, asked, result = messages.turns
    assert [("c1", "weather", "{}")] == [(each.id, each.name, each.arguments) for each in asked.calls]
    assert ("tool", "rain", "c1") == (result.role, result.content, result.call_id)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"functions": WEATHER}, "functions"),
        ({"functions": "weather"}, "functions"),
        ({"functions": [{"name": "weather"}]}, "functions"),
        ({"functions": [weft.Function(7)]}, "functions[0].name"),
        ({"functions": [weft.Function("a", "\ud800")]}, "functions[0].description"),
        ({"functions": [weft.Function("a", "", {"maximum": float("nan")})]}, "functions[0].parameters"),
        ({"functions": [weft.Function("a", "", {"of": {1, 2}})]}, "functions[0].parameters"),
        ({"messages": [CHAT[0] | {"calls": [{"name": "a"}]}]}, "messages[0].calls"),
        ({"messages": [CHAT[0] | {"tool_calls": []}]}, "messages[0]"),
        ({"messages": [CHAT[0] | {"call_id": 7}]}, "messages[0].call_id"),
    ],
)
def test_functions_that_cannot_be_sent_are_refused_by_name(client, server, options, field):
    """Nothing is sent for a wrong type, or for what is no JSON."""
    with pytest.raises(weft.InvalidRequest) as refused:
        client.generate(**{"messages": CHAT} | options, model="m")
    assert ([field], []) == ([each.field for each in refused.value.field_violations], server.servicer.seen)


def test_pictures_and_texts_of_a_message_are_carried_in_their_order(client, server, tmp_path):
    """A string is a text, bytes and a Path are a picture, and others say which it is. A tuple is a list too."""
    path = tmp_path / "a.png"
    path.write_bytes(b"of a file")
    shown = weft.Picture(str(path)), weft.Picture(b"too")
    said = ["What is", path, "beside", b"of bytes", {"text": "and"}, {"image": str(path)}, *shown]
    client.generate(messages=[{"role": "user", "content": said}, {"role": "user", "content": ("b",)}], model="m")

    first, second = server.servicer.seen[0].request.messages.turns
    sent = [part.text or part.image.data for part in first.parts]
    assert ["What is", b"of a file", "beside", b"of bytes", "and", b"of a file", b"of a file", b"too"] == sent
    assert ("", "", ["b"]) == (first.content, second.content, [part.text for part in second.parts])


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (["a", 7], "messages[0].content[1]"),
        ([{"text": "a", "image": b"b"}], "messages[0].content[0]"),
        ([{"type": "text"}], "messages[0].content[0]"),
        ([{"video": b"a"}], "messages[0].content[0]"),
        ([{"text": 7}], "messages[0].content[0].text"),
        ([{"image": "no/such.png"}], "messages[0].content[0]"),
        ([weft.Picture("no/such.png")], "messages[0].content[0]"),
        (b"a", "messages[0].content"),
        (7, "messages[0].content"),
    ],
)
def test_a_part_that_is_neither_is_refused_by_its_place(client, server, content, field):
    """And nothing is sent."""
    with pytest.raises(weft.InvalidRequest) as refused:
        client.generate(messages=[{"role": "user", "content": content}], model="m")
    assert ([field], []) == ([each.field for each in refused.value.field_violations], server.servicer.seen)


def test_functions_are_for_a_chat(client, server):
    """A prompt tells a model of none."""
    with pytest.raises(weft.InvalidRequest, match="functions"):
        client.generate("a", functions=[WEATHER])
    assert not server.servicer.seen


@pytest.mark.parametrize(
    ("verb", "args", "options"),
    [
        ("tokenize", (), {}),
        ("tokenize", ("a",), {"messages": []}),
        ("tokenize", (b"raw",), {}),
        ("tokenize", ([1, 2],), {}),
        ("tokenize", ("a",), {"side": "left"}),
        ("tokenize", ("a",), {"side": ["input"]}),
        ("tokenize", ("a",), {"token_ids": [1]}),
        ("tokenize", ("a",), {"explain": True}),
        ("detokenize", ("12",), {}),
        ("detokenize", (7,), {}),
        ("detokenize", ([-1],), {}),
        ("detokenize", ([1],), {"count_only": True}),
    ],
)
def test_what_cannot_be_cut_or_joined_is_refused_here(client, server, verb, args, options):
    """Nothing is sent for a text or ids of a wrong type, a side that there is not, or an option that is another's."""
    with pytest.raises((weft.InvalidRequest, TypeError)):
        getattr(client, verb)(*args, model="m", **options)
    assert not server.servicer.seen


def test_the_request_carries_every_option(client, server):
    """Each option of a translation stands in its field of the request."""
    client.translate(
        "hola",
        source_language="es",
        target_language="en",
        split_sentences=True,
        explain=True,
        return_scores=True,
        decoding=DECODING,
        **COMMON,
    )

    request = server.servicer.seen[0].request
    assert ("m", 3, "r-1") == (request.model.name, request.model.version, request.request_id)
    assert ("hola", "es", "en") == (request.text, request.source_language, request.target_language)
    assert request.HasField("explain")
    assert request.split_sentences
    assert request.return_scores
    assert (
        common.Decoding(
            max_new_tokens=7,
            min_new_tokens=2,
            stop=["\n", "ñ"],
            sampling=common.Sampling(temperature=0.5, top_k=4, top_p=0.75, seed=9),
        )
        == request.decoding
    )


def test_what_is_not_said_is_not_sent(client, server):
    """Without options, every optional field stays unset, so that the server's defaults hold."""
    client.generate("a", decoding=weft.Decoding())

    request = server.servicer.seen[0].request
    assert ["decoding", "model", "text"] == sorted(field.name for field, _ in request.ListFields())
    assert common.Decoding() == request.decoding
    assert not request.model.HasField("version")


def test_none_leaves_stop_strings_to_the_model(client, server):
    """As with every field of Decoding."""
    client.generate("a", decoding=weft.Decoding(stop=None))

    assert common.Decoding() == server.servicer.seen[0].request.decoding
    with pytest.raises(weft.InvalidRequest, match="stop"):
        client.generate("a", decoding=weft.Decoding(stop=5))


@pytest.mark.parametrize("option", ["text", "token_ids", "image"])
def test_an_input_is_no_option(client, option):
    """A text or picture beside the one that is asked about would silently take its place."""
    with pytest.raises(TypeError, match=f"unknown option '{option}'"):
        client.generate("a", **{option: "b"})


def test_a_translation_comes_out_typed(client):
    """Every field of the answer arrives: text, scores, timings in seconds, and the alignment as rows."""
    answer = client.translate("we are here", explain=True, return_scores=True, decoding=DECODING)

    assert (
        weft.Translation(
            text="here are we",
            token_ids=(0, 1, 2),
            tokens=("here", "are", "we"),
            token_log_probs=(-0.5, -0.5, -0.5),
            finish_reason=weft.FinishReason.STOP,
            decoding=DECODING,
            usage=weft.Usage(input_tokens=3, output_tokens=3),
            timings=weft.Timings(queue=0.0015, prefill=0.002, decode=1.0),
            model=weft.ResolvedModel("en-es", 1),
            request_id="made-by-server",
            alignment=weft.Alignment(
                target_tokens=("here", "are", "we"),
                source_tokens=("we", "are", "here"),
                grid_rows=0,
                grid_columns=0,
                weights=((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)),
                source_mass=(0.5, 0.5, 0.5),
                layer=None,
                head=None,
            ),
        )
        == answer
    )
    assert [("here", (0.0, 0.0, 1.0)), ("are", (0.0, 1.0, 0.0)), ("we", (1.0, 0.0, 0.0))] == list(
        answer.alignment.rows()
    )


def test_an_answers_decoding_asks_for_the_same_again(client, server):
    """The decoding that an answer carries can be sent as it is."""
    first = client.generate("a b", decoding=DECODING)
    client.generate("a b", decoding=first.decoding)

    assert server.servicer.seen[0].request == server.servicer.seen[1].request


def test_an_images_alignment_folds_into_its_grid(client):
    """`grid` gives one row of weights as rows and columns of patches."""
    alignment = client.caption(b"12345", explain=True).alignment

    assert (2, 3) == (alignment.grid_rows, alignment.grid_columns)
    assert ((0.0, 1.0, 0.0), (0.0, 0.0, 0.0)) == alignment.grid(4)
    assert () == replace(alignment, grid_rows=0, grid_columns=0).grid(4)  # a text's


def test_an_answers_alignment_is_over_picture_and_question(client):
    """Each word of the answer has a row over the grid, and one over the words of the question, as no caption has."""
    alignment = client.answer(b"12345", "what is it", explain=True).alignment

    assert ("5", "it", "is", "what") == alignment.target_tokens
    assert ("what", "is", "it") == alignment.question_tokens
    first, second, third = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    assert (first, second, third, first) == alignment.question_weights
    assert (0.25,) * 4 == alignment.question_mass
    assert 6 == len(alignment.weights[0])
    other = client.caption(b"12345", explain=True).alignment
    assert () == other.question_tokens == other.question_weights == other.question_mass


def test_the_alignment_of_a_chat_says_which_columns_are_places_of_pictures(client):
    """A grid for each picture, the part of it on which it lies, and the columns of words."""
    said = [{"role": "user", "content": [b"one", b"another", "which is it"]}]
    alignment = client.generate(messages=said, explain=True).alignment

    grids = [weft.PictureColumns(each, 4 * each, 2, 2, 2, (0.25, 0.0, 0.75, 1.0)) for each in range(2)]
    assert grids == list(alignment.pictures)
    assert ("<image>",) * 8 == alignment.source_tokens[:8]
    assert tuple(range(8, len(alignment.source_tokens))) == alignment.word_columns
    assert ((0.0, 0.0), (0.0, 0.0)) == alignment.over(0, grids[0])
    assert () == client.generate("a b", explain=True).alignment.pictures


EXPLAIN = [
    (False, None),
    (True, common.Explain()),
    (weft.Explain(), common.Explain()),
    (weft.Explain(layer=0), common.Explain(layer=0)),
    (weft.Explain(layer=1, head=0), common.Explain(layer=1, head=0)),
]


@pytest.mark.parametrize(("explain", "sent"), EXPLAIN)
@pytest.mark.parametrize("verb", ["translate", "generate", "classify", "tag", "caption"])
def test_an_explanation_is_of_what_was_asked(client, server, verb, explain, sent):
    """True asks for the model's default, an Explain for its layer and head, 0 included; the alignment says which."""
    answer = getattr(client, verb)(b"1" if verb == "caption" else "a b", explain=explain)

    request = server.servicer.seen[0].request
    assert sent == (request.explain if request.HasField("explain") else None)
    if sent is None:
        assert answer.alignment is None
    else:
        layer, head = (getattr(sent, field) if sent.HasField(field) else None for field in ("layer", "head"))
        assert (layer, head) == (answer.alignment.layer, answer.alignment.head)


def test_a_head_needs_its_layer(client, server):
    """A head without a layer names nothing: it is refused before anything is sent."""
    with pytest.raises(weft.InvalidRequest) as caught:
        client.generate("a", explain=weft.Explain(head=1))

    assert ("explain.head",) == tuple(each.field for each in caught.value.field_violations)
    assert [] == server.servicer.seen


@pytest.mark.parametrize(
    ("explain", "field"),
    [({"layer": 0}, "explain"), ("x", "explain"), (1, "explain"), (weft.Explain(layer=-1), "explain.layer")],
)
def test_what_cannot_be_meant_by_explain_is_refused(client, server, explain, field):
    """Anything but a bool, None or an Explain in range is refused here, and nothing is sent."""
    with pytest.raises(weft.InvalidRequest) as caught:
        client.generate("a", explain=explain)

    assert (field,) == tuple(each.field for each in caught.value.field_violations)
    assert [] == server.servicer.seen


@pytest.mark.parametrize("strategy", [weft.Greedy, "greedy"])
def test_a_strategy_that_is_none_is_refused(client, server, strategy):
    """The class without its parentheses would leave the choice to the model, which may sample."""
    with pytest.raises(weft.InvalidRequest, match="strategy: must be"):
        client.translate("a b", decoding=weft.Decoding(strategy=strategy))
    with pytest.raises(weft.InvalidRequest, match="decoding: must be"):
        client.translate("a b", decoding={"max_new_tokens": 3})
    assert not server.servicer.seen


@pytest.mark.parametrize("metadata", [{"x token": "a"}, {"x-bin": "a"}, {"x": b"a"}, {"": "a"}, {"x": "\n"}])
def test_metadata_that_no_header_can_hold_is_refused(metadata):
    """Before anything is sent, by the client's own exception."""
    with pytest.raises(weft.InvalidRequest, match="metadata"):
        weft.Client("localhost:1", metadata=metadata)


def test_a_file_that_no_server_takes_is_not_read(client, tmp_path):
    """Three gigabytes, which take no room on the disk, are refused by their size."""
    film = tmp_path / "film.mkv"
    with film.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(weft.InvalidRequest, match="no server takes so many"):
        client.caption(film)


def test_a_tagging_comes_out_typed(client):
    """Each token's label and place, the spans, and what every answer says of itself."""
    assert weft.Tagging(
        tokens=(
            weft.TokenLabel("in", start=0, end=2, label="O", index=0, score=0.75),
            weft.TokenLabel("LIMA", start=3, end=7, label="B-NAME", index=1, score=0.75),
        ),
        spans=(weft.Span("NAME", start=3, end=7, text="LIMA", score=0.75),),
        usage=weft.Usage(input_tokens=4, output_tokens=0),
        timings=weft.Timings(queue=0.0, prefill=0.003, decode=0.0),
        model=weft.ResolvedModel("tags", 1),
        request_id="made-by-server",
    ) == client.tag("in LIMA")


@pytest.mark.parametrize(
    "kind", [str, lambda path: path, lambda path: path.read_bytes(), lambda path: bytearray(path.read_bytes())]
)
def test_a_picture_is_bytes_or_a_path(client, server, tmp_path, kind):
    """However a picture is given, its bytes are sent."""
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG...")
    client.caption(kind(path))

    assert b"\x89PNG..." == server.servicer.seen[0].request.image.data


def test_models_come_out_typed(client):
    """A model's limits, labels, languages and state arrive; a classifier has no decoding."""
    translator, classifier = client.list_models()

    assert weft.Task.TRANSLATE == translator.task
    assert weft.ModelState.READY == translator.state
    assert weft.Limits(64, 0, 48, 0, 0, 0) == translator.limits
    assert (("en",), ("es", "pt")) == (translator.source_languages, translator.target_languages)
    assert weft.Decoding(max_new_tokens=48, min_new_tokens=0, strategy=weft.Greedy()) == translator.decoding
    assert ("model.onnx: digest differs", weft.ModelState.FAILED) == (classifier.error, classifier.state)
    assert (("a", "b"), None) == (classifier.labels, classifier.decoding)
    assert ((4, 4), 1) == (translator.attention_heads, translator.default_attention_layer)
    assert ((), None) == (classifier.attention_heads, classifier.default_attention_layer)
    assert (("translate: ",), ()) == (translator.prefixes, classifier.prefixes)
    assert (True, False) == (translator.takes_messages, classifier.takes_messages)
    assert classifier == client.get_model("topics", 2)


def test_a_word_of_a_newer_server_is_unspecified(client, monkeypatch):
    """An enum value that this client does not know is no error."""
    monkeypatch.setattr("fakes.MODELS", [model.Model(name="new", task=99, state=99)])
    (newer,) = client.list_models()

    assert (weft.Task.UNSPECIFIED, weft.ModelState.UNSPECIFIED) == (newer.task, newer.state)


def test_the_model_s_name_goes_beside_the_request():
    """A server can refuse a request whose model it has no room for, unread. A request that names none has no header."""
    with fake_server() as server, weft.Client(server.target, metadata={"x": "y"}) as client:
        client.translate("a", model="en-es")
        list(client.stream_generate("a", model="gpt"))
        client.translate("a")
        client.translate("a", model="Not a name\n")
        names = [seen.metadata.get("weft-model") for seen in server.servicer.seen]
        assert ["en-es", "gpt", None, None] == names
        assert ["y"] * 4 == [seen.metadata["x"] for seen in server.servicer.seen]


def test_a_client_s_class_goes_with_every_call():
    """A client for work that can wait says so, and still watches its servers."""
    with fake_server() as server, weft.Client(server.target, priority="low") as client:
        client.generate("a")
        assert "low" == server.servicer.seen[0].metadata["weft-priority"]
        assert client._settings.watch_health
    with pytest.raises(weft.InvalidRequest, match=r"^priority: must be high, normal or low, not 'urgent'$"):
        weft.Client(priority="urgent")


def test_metadata_goes_with_every_call():
    """What the client was given as metadata, for instance a token, stands on unary calls and streams."""
    with fake_server() as server, weft.Client(server.target, metadata={"Authorization": "Bearer x"}) as client:
        client.generate("a")
        list(client.stream_generate("a"))

        assert ["Bearer x", "Bearer x"] == [seen.metadata["authorization"] for seen in server.servicer.seen]


def test_health_speaks_for_each_service(client, server):
    """`health` tells what the server says of itself and of a service; one that it does not have is NotFound."""
    server.set_health("model/en-es", serving=False)

    assert weft.Health.SERVING == client.health()
    assert weft.Health.NOT_SERVING == client.health("model/en-es")
    with pytest.raises(weft.NotFound):
        client.health("model/nope")


@pytest.mark.parametrize("name", [name for name in vars(weft.Client) if not name.startswith("_")])
def test_the_clients_have_the_same_verbs(name):
    """Every verb stands on both clients with the same arguments, but that many inputs may come from async iterables."""

    def arguments(kind):
        return [
            (each.name, each.kind, each.default, without_async(each.annotation))
            for each in inspect.signature(getattr(kind, name)).parameters.values()
        ]

    def without_async(annotation):
        kinds = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
        return {each for each in kinds if typing.get_origin(each) is not AsyncIterable}

    assert arguments(weft.Client) == arguments(weft.AsyncClient)


class Made:
    """A channel that keeps how each method on it was made, by path."""

    def __init__(self):
        self.methods = {}

    def unary_unary(self, path, **options):
        """Keep a method that answers once."""
        return self.methods.setdefault(path, ("unary", *options.items()))

    def unary_stream(self, path, **options):
        """Keep a method that answers with a stream."""
        return self.methods.setdefault(path, ("stream", *options.items()))


def test_methods_are_made_as_the_generated_stubs_make_them():
    """Each method that asks a model is on a channel by its path, and gRPC is told of it all that a stub says."""
    stubs, ours = Made(), Made()
    for method in METHODS.values():
        if not method.takes_names:
            module = method.request.DESCRIPTOR.file.name.replace("/", ".").replace(".proto", "_pb2_grpc")
            stub = getattr(import_module(module), f"{method.service.rpartition('.')[2]}Stub")
            stub(stubs)

    assert stubs.methods == methods_on(ours)
