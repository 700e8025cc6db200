"""The prompt that messages make is transformers' own, to the last token, and a template's refusals are the caller's."""

import asyncio
import random
import warnings

import pytest
from jinja2.exceptions import TemplateError

import tokenizer_kinds
from chat_templates import TEMPLATES
from loaded import Loaded, ask
from weft_proto.v1 import bundle_pb2, common_pb2, generation_pb2
from weft_server.errors import BundleError, InvalidRequest
from weft_server.preprocessing.chat_template import MAX_MESSAGES, Chat
from weft_server.preprocessing.inputs import InputReader
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.preprocessing.wanted import Wanted

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    from transformers import PreTrainedTokenizerFast

LIMITS = dict.fromkeys(("max_image_bytes", "max_image_pixels", "max_audio_bytes", "max_audio_s"), 1)
TOKENS = {"bos_token": "<s>", "eos_token": "<end>"}
WORDS = ["hello", "¿dónde está?", " ", "\n", "日本語", "😀 emoji", "<end>", "{{ 7 * 7 }}", "</think>\nSo", "it's <b>"]


def messages_of(turns):
    """The message of the wire."""
    return generation_pb2.Messages(turns=[generation_pb2.Message(**turn) for turn in turns])


def refusal(read, turns):
    """Where and why messages are refused."""
    with pytest.raises(InvalidRequest) as refused:
        read(messages_of(turns), "messages", Wanted())
    return refused.value.field, refused.value.reason, refused.value.message


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """By the name of a template: our reader of messages, and transformers' tokenizer with the same two files."""
    made = {}
    directory = tmp_path_factory.mktemp("chat")
    source = tokenizer_kinds.byte_level()
    source.save(str(directory / "tokenizer.json"))
    text = bundle_pb2.TextSpec(max_total_tokens=2049, source_vocab_size=400)
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_GENERATE, text=text)
    for name, template in TEMPLATES.items():
        path = directory / f"{name}.jinja"
        path.write_text(template)
        chat = Chat(bundle_pb2.ChatSpec(template=path.name, **TOKENS), path)
        tokenizer = Tokenizer(directory / "tokenizer.json")
        reader = InputReader(manifest, tokenizer, chat, **LIMITS)
        theirs = PreTrainedTokenizerFast(tokenizer_object=source, chat_template=template, **TOKENS)
        made[name] = (reader, theirs)
    return made


def chats():
    """Chats of one to seven messages, most of them in the usual order of roles, some in any."""
    rng = random.Random(3)
    for index in range(60):
        roles = ["system"] * (rng.random() < 0.5) + ["user", "assistant"] * 3
        roles = roles[: rng.randrange(1, 8)]
        if index % 4 == 0:
            roles = rng.choices(["system", "user", "assistant", "tool", "ipython"], k=rng.randrange(1, 6))
        yield [{"role": role, "content": " ".join(rng.choices(WORDS, k=rng.randrange(5)))} for role in roles]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt_is_that_of_transformers(readers, name):
    """The same ids for the same messages, or both refuse them with the same words."""
    reader, theirs = readers[name]
    answered = refused = 0
    for turns in chats():
        try:
            expected = theirs.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        except TemplateError as error:
            words = f"messages are refused by the model's chat template: {error}"
            assert ("messages", "CHAT_REFUSED", words) == refusal(reader.read_messages, turns)
            refused += 1
            continue
        if expected:
            assert expected == reader.read_messages(messages_of(turns), "messages", Wanted()).array.tolist()
            answered += 1
    assert answered >= 10
    assert bool(refused) == ("raise_exception('" in TEMPLATES[name] or name == "mistral")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_text_is_that_of_transformers(readers, name):
    """Before it becomes ids, too."""
    reader, theirs = readers[name]
    turns = [
        {"role": "user", "content": " A\n\nb? "},
        {"role": "assistant", "content": "C"},
        {"role": "user", "content": "é"},
    ]
    expected = theirs.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert expected == reader.chat.prompt(messages_of(turns), "messages", 1000, Wanted())
    assert expected


USER = {"role": "user", "content": "a"}
TURNS = "messages.turns"


@pytest.mark.parametrize(
    ("turns", "field", "reason", "message"),
    [
        ([], TURNS, "EMPTY_INPUT", "messages.turns must not be empty"),
        ([USER] * 1025, TURNS, "INVALID_FIELD", "messages.turns must be at most 1,024 messages, not 1,025"),
        ([USER, {"content": "a"}], f"{TURNS}[1].role", "INVALID_FIELD", f"{TURNS}[1].role must be 1..64 characters"),
        ([{"role": "u" * 65}], f"{TURNS}[0].role", "INVALID_FIELD", f"{TURNS}[0].role must be 1..64 characters"),
        (
            [{"role": "user", "content": "x" * 40_000}, {"role": "user", "content": "x" * 40_000}],
            TURNS,
            "INPUT_TOO_LONG",
            "messages.turns are 80,000 characters long; of this model's tokens no more than 65,536 can come",
        ),
        (
            [{"role": "user", "content": "x" * 65_536}],
            "messages",
            "INPUT_TOO_LONG",
            "messages make a prompt of 65636 characters; the model takes 2048 tokens",
        ),
        (
            [{"role": "user", "content": "x" * 4000}],
            "messages",
            "INPUT_TOO_LONG",
            "tokens; the model takes 2048 tokens",
        ),
    ],
)
def test_wrong_messages_are_refused_by_their_field(readers, turns, field, reason, message):
    """None, too many, without a role, or too long: before the template sees them, or when their tokens are counted."""
    refused = refusal(readers["chatml"][0].read_messages, turns)
    assert (field, reason) == refused[:2]
    assert message in refused[2]


def test_as_many_messages_as_are_allowed_are_taken(readers):
    """1,024 messages, roles of 64 characters, and empty contents."""
    reader, _ = readers["zephyr"]
    turns = [{"role": "u" * 64, "content": ""}] * (MAX_MESSAGES - 1) + [USER]
    assert reader.read_messages(messages_of(turns), "messages", Wanted()).num_tokens


def made(tmp_path, template):
    """A chat with a template."""
    path = tmp_path / "chat.jinja"
    path.write_bytes(template if isinstance(template, bytes) else template.encode())
    return Chat(bundle_pb2.ChatSpec(template=path.name), path)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (b"\xff", "chat.jinja is not UTF-8"),
        ("{{", "no template that a chat can use: unexpected 'end of template'"),
        ("{{ raise_exception('nobody') }}", "no template that a chat can use: nobody"),
        ("{{ 1 + 'a' }}", "no template that a chat can use: unsupported operand"),
        ("{% for a in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "it makes over 4,194,304 characters"),
    ],
)
def test_a_template_that_takes_no_plain_message_is_refused_with_its_bundle(tmp_path, template, reason):
    """It is tried when it is loaded."""
    with pytest.raises(BundleError) as refused:
        made(tmp_path, template)
    assert reason in str(refused.value)


def test_a_template_that_fails_for_some_messages_refuses_those(tmp_path):
    """What it cannot do, and what is beyond its limits, is said in the answer to these messages only."""
    source = "{% if messages|length == 2 %}{{ 1 + 'a' }}{% elif messages|length == 3 %}{{ 'a' * 10**9 }}{% endif %}a"
    chat = made(tmp_path, source)
    read = lambda *args: chat.prompt(args[0], args[1], 1000, args[2])  # noqa: E731
    assert "a" == read(messages_of([USER]), "messages", Wanted())
    fails = "messages make the model's chat template fail: unsupported operand type(s) for +: 'int' and 'str'"
    assert ("messages", "TEMPLATE_FAILED", fails) == refusal(read, [USER] * 2)
    beyond = "messages take the model's chat template beyond its limits: it makes over 4,194,352 characters"
    assert ("messages", "TEMPLATE_FAILED", beyond) == refusal(read, [USER] * 3)


def test_messages_are_answered_as_their_prompt_is(tiny_repository):
    """The same answer as to the ids of the prompt, and the same explanation: over the prompt's tokens."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            turns = [USER, {"role": "assistant", "content": " b "}, {"role": "user", "content": "the cat"}]
            ids = model.source_tokenizer.encode_framed("u:a<end>a:b<end>u:the cat<end>a:")
            assert 1 == ids[3]  # the special token that the template wrote
            request = {"decoding": common_pb2.Decoding(max_new_tokens=6), "explain": common_pb2.Explain()}
            answer = await ask(model, messages=messages_of(turns), **request)
            expected = await ask(model, token_ids=common_pb2.TokenIds(ids=ids), **request)
            assert expected.completion.token_ids == answer.completion.token_ids
            assert len(ids) == answer.completion.usage.input_tokens
            assert expected.alignment == answer.alignment
            assert model.source_tokenizer.pieces(ids) == list(answer.alignment.source_tokens)
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, messages=messages_of([{"role": "ghost"}]))
            expected = "messages are refused by the model's chat template: nobody is called ghost"
            assert ("messages", expected) == (refused.value.field, refused.value.message)

    asyncio.run(run())


def test_a_model_without_a_template_takes_no_messages(tiny_repository):
    """It says so by the field, and what to give instead."""

    async def run():
        async with Loaded(tiny_repository / "tiny-gpt" / "1") as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, messages=messages_of([USER]))
            expected = (
                "messages are not taken by the model 'tiny-gpt', which has no chat template: give text or token_ids"
            )
            assert ("WRONG_INPUT_KIND", expected) == (refused.value.reason, refused.value.message)

    asyncio.run(run())
