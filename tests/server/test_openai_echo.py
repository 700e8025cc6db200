"""`echo`: a completion begins with its prompt, as harnesses that evaluate models ask for it."""

import asyncio

import pytest
from tokenizers import normalizers

import tokenizer_kinds
from openai_calls import Client, Scripted, serving
from weft_proto.v1 import common_pb2, generation_pb2, score_pb2, tokenization_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import Overloaded
from weft_server.openai_api.echo_answers import prompt_offsets
from weft_server.openai_api.log_probs import first_text
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.structured_output.token_bytes import spelling_of

COMPLETIONS = "/v1/completions"
PROMPT, AGAIN = "Return a list of", "Open the file and"
ASK = {"model": "pydocs", "temperature": 0, "echo": True}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def served(repository, talk):
    """What somebody hears who talks to a model that continues prompts."""

    async def run():
        async with serving(repository, "pydocs") as client:
            return await talk(client)

    return asyncio.run(run())


def test_a_prompt_has_the_scores_of_score(demo_repository):
    """Of all tokens but the first, which has none. A text, its ids and a batch of both have the same."""

    async def talk(client):
        ids = (await client.post("/tokenize", model="pydocs", prompt=PROMPT))["tokens"]
        request = score_pb2.ScoreRequest(
            model={"name": "pydocs"}, token_ids={"ids": ids[:2]}, target_ids={"ids": ids[2:]}, num_top_tokens=2
        )
        typed = await client.caller.unary(METHODS["Score"], request)
        bodies = [{"prompt": PROMPT}, {"prompt": ids}, {"prompt": [AGAIN, PROMPT]}]
        whole = [await client.post(COMPLETIONS, **ASK, **each, max_tokens=0, logprobs=2) for each in bodies]
        return ids, typed, [each["choices"][-1] for each in whole], whole

    ids, typed, choices, whole = served(demo_repository, talk)
    assert [0, 0, 1] == [each["index"] for each in choices]
    assert {"prompt_tokens": len(ids), "completion_tokens": 0, "total_tokens": len(ids)} == {
        name: value for name, value in whole[0]["usage"].items() if isinstance(value, int)
    }
    for choice in choices:
        scores = choice["logprobs"]
        assert (PROMPT, "length") == (choice["text"], choice["finish_reason"])
        assert f"<start>{PROMPT}" == "".join(scores["tokens"])
        assert (None, None) == (scores["token_logprobs"][0], scores["top_logprobs"][0])
        assert [*typed.token_log_probs] == pytest.approx(scores["token_logprobs"][2:], abs=1e-4)
        assert [2] * (len(ids) - 1) == [len(each) for each in scores["top_logprobs"][1:]]
        assert scores["text_offset"] == [0, *(len("".join(scores["tokens"][1:place])) for place in range(1, len(ids)))]


def test_a_continuation_stands_behind_its_prompt(demo_repository):
    """Its text, tokens and scores are those that it has without `echo`, for each of several answers."""

    async def talk(client):
        ask = {"model": "pydocs", "prompt": [PROMPT, AGAIN], "max_tokens": 4, "logprobs": 1}
        ask |= {"n": 2, "temperature": 1.5, "seed": 7}
        plain, echoed = [await client.post(COMPLETIONS, **ask, echo=each) for each in (False, True)]
        short = await client.post(COMPLETIONS, **ask | {"logprobs": None}, echo=True)
        one = await client.post(COMPLETIONS, **ASK, prompt=[5], max_tokens=1, logprobs=1)
        return plain, echoed, short, one

    plain, echoed, short, one = served(demo_repository, talk)
    assert plain["usage"] == echoed["usage"]
    for number, (alone, behind) in enumerate(zip(plain["choices"], echoed["choices"], strict=True)):
        prompt = [PROMPT, AGAIN][number // 2]
        assert prompt + alone["text"] == behind["text"]
        size = len(alone["logprobs"]["tokens"])
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            assert alone["logprobs"][name] == behind["logprobs"][name][-size:]
        assert len(prompt) == behind["logprobs"]["text_offset"][-size]
    assert [each["text"] for each in echoed["choices"]] == [each["text"] for each in short["choices"]]
    assert [None] == [each for each in one["choices"][0]["logprobs"]["token_logprobs"] if each is None]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": PROMPT, "max_tokens": 6, "logprobs": 1},
        {"prompt": [[5, 6], [7, 8, 9]], "max_tokens": 3},
        {"prompt": [PROMPT, AGAIN], "max_tokens": 4, "n": 2, "temperature": 1.5, "seed": 7, "logprobs": 0},
        {"prompt": [AGAIN, PROMPT], "max_tokens": 0, "logprobs": 1},
        {"prompt": PROMPT, "max_tokens": 4, "num_beams": 2, "n": 2},
    ],
)
def test_a_stream_joins_to_the_whole_answer(demo_repository, fields):
    """The first chunk of each choice is its prompt. The text, the scores, the reason and the usage are the same."""

    async def talk(client):
        whole = await client.post(COMPLETIONS, **ASK | fields)
        _, _, events = await client.send("POST", COMPLETIONS, ASK | fields | STREAM)
        return whole, events

    whole, (*chunks, usage, done) = served(demo_repository, talk)
    assert ("[DONE]", whole["usage"]) == (done, usage["usage"])
    for choice in whole["choices"]:
        parts = [each for chunk in chunks for each in chunk["choices"] if each["index"] == choice["index"]]
        assert choice == parts[-1] | {"text": "".join(each["text"] for each in parts)}
        given = fields["prompt"] if isinstance(fields["prompt"], list) else [fields["prompt"]]
        prompt = given[choice["index"] // fields.get("n", 1)]
        if isinstance(prompt, str):
            assert prompt == parts[0]["text"]


@pytest.mark.parametrize("has_seams", [True, False])
def test_a_stream_has_the_space_at_the_seam(has_seams):
    """Only the ids of an answer tell of it, which come last. So then the answer's text does, too."""
    spelt = {(1, True): b"cat", (1, False): b" cat" if has_seams else b"cat"}
    deltas = [generation_pb2.StreamGenerateResponse(delta={"text": each}) for each in ("ca", "t")]
    final = {"completion": {"text": "cat", "token_ids": [1], "finish_reason": 1}}
    caller = Scripted(*deltas, generation_pb2.StreamGenerateResponse(final=final))
    told = {"token_ids": [1], "tokens": ["cat"], "model": {"name": "m", "version": 3}}
    caller.first = tokenization_pb2.TokenizeResponse(**told)
    spelling = {"spelling_of": lambda _: lambda *each: spelt[each], "has_seams": lambda _: has_seams}
    _, _, events = asyncio.run(Client(caller, **spelling).send("POST", COMPLETIONS, ASK | STREAM | {"prompt": "a"}))

    texts = [each["choices"][0]["text"] for each in events[:-2]]
    assert (["a", " cat", ""] if has_seams else ["a", "ca", "t", ""]) == texts


def test_a_stream_that_is_refused_has_not_begun():
    """Though the prompt is known before: a full model is a status, which clients try again."""
    caller = Scripted(Overloaded("QUEUE_FULL", "full"))
    caller.first = tokenization_pb2.TokenizeResponse(token_ids=[1], tokens=["a"], model={"name": "m"})
    client = Client(caller, spelling_of=lambda _: lambda *_: b"a")

    assert 429 == asyncio.run(client.refusal(COMPLETIONS, **ASK | {"prompt": "a", "stream": True}))[0]


@pytest.mark.parametrize(
    ("task", "fields", "param"),
    [
        (common_pb2.TASK_TRANSLATE, {}, "echo"),
        *(
            (common_pb2.TASK_GENERATE, {"max_tokens": 0} | fields, param)
            for fields, param in (
                ({"n": 2}, "n"),
                ({"n": 0}, "n"),
                ({"explain": True}, "explain"),
                ({"regex": "(("}, "regex"),
                ({"grammar": "start: A"}, "grammar"),
                ({"choice": ["a"]}, "choice"),
                ({"response_format": {"type": "json_object"}}, "response_format"),
                ({"num_beams": 2}, "num_beams"),
                ({"stop": "a"}, "stop"),
                ({"stop_token_ids": [1]}, "stop_token_ids"),
                ({"min_tokens": 5}, "min_tokens"),
                ({"logit_bias": {"5": 1}}, "logit_bias"),
                ({"repetition_penalty": 1.1}, "repetition_penalty"),
                ({"encoder_repetition_penalty": 2}, "encoder_repetition_penalty"),
                ({"cache_salt": "\u00e9"}, "cache_salt"),
                ({"temperature": 99}, "temperature"),
            )
        ),
    ],
)
def test_an_echo_that_cannot_be_is_refused_by_name(task, fields, param):
    """A translation has no prompt. Of no answer nothing can be asked."""
    refused = Client(Scripted(), task).refusal(COMPLETIONS, **{"model": "m", "prompt": "p", "echo": True} | fields)

    assert (400, param) == asyncio.run(refused)[:2]


def test_the_space_before_an_answers_first_word_is_there():
    """An answer alone has none, with tokenizers that put it before each word. A special token has no space.

    Nor has a piece of a word, which alone shows the mark of one.
    """
    spelt = {(1, True): b"cat", (1, False): b" cat", (0, True): None, (0, False): None}
    spelt |= {(2, True): b"##s", (2, False): b"s"}
    texts = []
    for text, ids in (("cat cat", [0, 1, 1]), ("", [1]), ("##s cat", [2, 1])):
        caller = Scripted(
            tokenization_pb2.TokenizeResponse(token_ids=[1], tokens=["cat"], model={"name": "m", "version": 3}),
            generation_pb2.GenerateResponse(completion={"text": text, "token_ids": ids, "finish_reason": 1}),
        )
        client = Client(caller, spelling_of=lambda _: lambda id_, begins: spelt[id_, begins])
        answer = asyncio.run(client.post(COMPLETIONS, model="m@canary", prompt="cat", echo=True))
        texts.append(answer["choices"][0]["text"])
        assert [0, 3] == [each.model.version for _, each in caller.asked], "the version that cut the prompt answers"
    assert ["cat cat cat", "cat", "cats cat"] == texts


def test_what_changes_nothing_goes_with_no_answer(demo_repository):
    """Harnesses send how to draw and how not to repeat with all that they ask."""
    ask = ASK | {"prompt": PROMPT, "max_tokens": 0, "logprobs": 1}
    same = {"temperature": 0.5, "top_p": 0.9, "seed": 3, "n": 1, "presence_penalty": 0, "min_tokens": 0}
    same |= {"response_format": {"type": "text"}, "stop": [], "logit_bias": {}, "cache_salt": "s"}

    async def talk(client):
        return [(await client.post(COMPLETIONS, **ask | more))["choices"] for more in ({}, same)]

    plain, more = served(demo_repository, talk)
    assert plain == more


@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "pydocs:nope"}, "model"),
        ({"prompt": [5] * 3000}, "prompt"),
        ({"model": "pydocs:x", "prompt": [5]}, "model"),
    ],
)
def test_no_answer_is_judged_as_one(demo_repository, fields, param, logprobs):
    """The adapter and the length of a prompt are judged with and without scores, as where something is generated."""

    async def talk(client):
        asked = [ASK | {"prompt": PROMPT, "logprobs": logprobs, "max_tokens": most} | fields for most in (0, 1)]
        return [await client.refusal(COMPLETIONS, **each) for each in asked]

    none, one = served(demo_repository, talk)
    assert none[1:] == one[1:]
    assert param == none[1].partition("[")[0]


@pytest.mark.parametrize("max_tokens", [0, 4])
def test_special_tokens_of_a_text_stand_where_their_names_do(demo_repository, max_tokens):
    """Each offset is where the token's own text begins, and the answer begins where the prompt ends."""
    prompt = "<start>x<end>yz"

    async def talk(client):
        return await client.post(COMPLETIONS, **ASK, prompt=prompt, max_tokens=max_tokens, logprobs=0)

    (choice,) = served(demo_repository, talk)["choices"]
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    assert choice["text"].startswith(prompt)
    assert (["<start>", "<start>", "x", "<end>"], [0, 0, 7, 8]) == (tokens[:4], offsets[:4])
    stand = [choice["text"][start:].startswith(token) for token, start in zip(tokens, offsets, strict=True)]
    assert [True] * (len(tokens) - max_tokens) == stand[: len(tokens) - max_tokens]
    if max_tokens:
        assert len(prompt) == offsets[-max_tokens]


def test_a_prompt_that_ends_within_a_character_is_cut_there():
    """The text has U+FFFD for each part, and so the offsets count both."""
    spelt = {1: b"a", 2: b"\xc3", 3: b"\xa9", 4: b"b"}
    scores = {"token_log_probs": [-1, -1], "tokens": ["?", "b"], "token_ids": [3, 4]}
    caller = Scripted(
        tokenization_pb2.DetokenizeResponse(text="a\ufffd", tokens=["a", "?"], model={"name": "m"}),
        score_pb2.ScoreResponse(token_ids=[2], tokens=["?"], token_log_probs=[-1]),
        generation_pb2.GenerateResponse(completion={"text": "\ufffdb", "finish_reason": 1} | scores),
    )
    client = Client(caller, spelling_of=lambda _: lambda id_, _: spelt[id_])
    answer = asyncio.run(client.post(COMPLETIONS, model="m", prompt=[1, 2], echo=True, logprobs=0))

    (choice,) = answer["choices"]
    assert ("a\ufffd\ufffdb", [0, 1, 2, 3]) == (choice["text"], choice["logprobs"]["text_offset"])


TEXTS = [
    " hola  pan",
    "a\u00e9 b \ufb01n",
    "ab?\n\nhola pan ",
    "\u65e5\u672c\U0001f600 a",
    "hello wor ld.don't",
    "<s>a <end> b",
]


@pytest.mark.parametrize("kind", ["byte_level", "words", "word_piece", "letters", "normalising"])
def test_a_prompt_s_tokens_stand_in_its_text(tmp_path, kind):
    """In their order, each where its own text begins, whatever a normaliser makes of that and whatever it removes."""
    made = getattr(tokenizer_kinds, "letters" if kind == "normalising" else kind)()
    if kind == "normalising":
        made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path / "tokenizer.json")
    spelling = spelling_of(tokenizer.vocabulary)
    num_spelt = 0
    for text in TEXTS:
        ids, starts, ends, added = zip(*tokenizer.split(text), strict=True)
        pieces = tokenizer.pieces(ids)
        cut = tokenization_pb2.TokenizeResponse(token_ids=ids, tokens=pieces, starts=starts, ends=ends, added=added)
        offsets = prompt_offsets(text, cut, spelling)
        assert sorted(offsets) == offsets
        first = first_text(ids, spelling)
        for index, (offset, start, end) in enumerate(zip(offsets, starts, ends, strict=True)):
            own = spelling(ids[index], index <= first)
            if own and text[offset:].encode().startswith(own):
                num_spelt += 1
            elif start < end:
                assert not text[offset:start].strip(), "it stands for something else than it shows"
    assert num_spelt > {"word_piece": 2}.get(kind, 40)
