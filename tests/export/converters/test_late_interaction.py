"""Models with a vector for each token: a directory of each library that saves such gives that library's vectors.

Each is held here to BERT of transformers with the rules of its library written out. On 2026-11-28 the same was held to
sentence-transformers 6.2 and to PyLate 1.2 themselves: vectors and scores within 1e-5.
"""

import asyncio
import json
import string

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from loaded import Loaded, ask, score
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest

WORDS = (
    *("the", "house", "is", "small", "and", "there", "a", "garden", "behind", "it"),
    *("we", "eat", "bread", "where", "lives", "maria", "in", "lisbon"),
)
SPECIAL = ("[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q] ", "[D] ")
VOCABULARY = {word: index for index, word in enumerate([*SPECIAL, *string.punctuation, *WORDS])}
CLS, SEP, MASK = (VOCABULARY[f"[{name}]"] for name in ("CLS", "SEP", "MASK"))
WIDTH, QUERY, DOCUMENT = 8, 12, 20
TEXTS = ("The house, is (small).", "where lives maria?", "!", "we eat bread")
TOLERANCE = 1e-5


def body(directory, *, of_stanford=False):
    """Save a random BERT, the linear layer behind it, and a tokenizer; return both layers."""
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.5,
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(directory)
    linear = torch.nn.Linear(32, WIDTH, bias=False)
    if of_stanford:
        weights = {
            f"bert.{name}": tensor
            for name, tensor in safetensors.torch.load_file(directory / "model.safetensors").items()
        }
        safetensors.torch.save_file(
            weights | {"linear.weight": linear.weight.detach()}, directory / "model.safetensors"
        )
        said = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(said | {"architectures": ["HF_ColBERT"]}))
    else:
        (directory / "1_Dense").mkdir()
        safetensors.torch.save_file(
            {"linear.weight": linear.weight.detach()}, directory / "1_Dense" / "model.safetensors"
        )
    tokenizer = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    tokenizer.add_special_tokens([word for word in SPECIAL if not word.startswith(("[unused", "[Q", "[D"))])
    # As PyLate adds them: a text in lower case never has one.
    tokenizer.add_tokens(["[Q] ", "[D] "])
    fast = transformers.BertTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", unk_token="[UNK]")
    fast.save_pretrained(directory)
    return model, linear


def dense(**names):
    """What a linear layer's config.json says."""
    identity = "torch.nn.modules.linear.Identity"
    return {"in_features": 32, "out_features": WIDTH, "bias": False, "activation_function": identity, **names}


def pylates(directory, *, transformer=None, **more):
    """The files that PyLate saves. transformer: what else that of the first module says."""
    modules = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    write(directory, modules, {"1_Dense": dense()})
    said = {
        "model_type": "ColBERT",
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": QUERY,
        "document_length": DOCUMENT,
        "attend_to_expansion_tokens": False,
        "do_query_expansion": True,
        "skiplist_words": [*string.punctuation],
    }
    (directory / "config_sentence_transformers.json").write_text(json.dumps(said | more))
    of_texts = {"max_seq_length": 40, "do_lower_case": False, **(transformer or {})}
    (directory / "sentence_bert_config.json").write_text(json.dumps(of_texts))


def sentence_transformers(directory, *, model=None, **more):
    """The files that sentence-transformers saves of a MultiVectorEncoder.

    model: what the model's file says, and not the first module's.
    """
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    own = "sentence_transformers.base.modules"
    mask = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
    modules = [
        ("", f"{own}.transformer.Transformer"),
        ("1_Dense", f"{own}.dense.Dense"),
        ("2_MultiVectorMask", mask),
        ("3_Normalize", f"{own}.normalize.Normalize"),
    ]
    skipped = {"skiplist_words": [*string.punctuation], "skiplist_tasks": ["document"], "keep_only_token_ids": None}
    write(directory, modules, {"1_Dense": dense(**tokens), "2_MultiVectorMask": skipped, "3_Normalize": tokens})
    prompts = {"query": "[Q] ", "document": "[D] "}
    said = {"model_type": "MultiVectorEncoder", "prompts": prompts, "similarity_fn_name": more.pop("similarity", None)}
    (directory / "config_sentence_transformers.json").write_text(json.dumps(said | (model or {})))
    expansion = {"strategy": "fixed", "attend": False, "token": None, "length": QUERY}
    of_texts = (
        {"document_length": DOCUMENT, "query_length": None, "query_expansion": expansion} if model is None else {}
    )
    (directory / "sentence_bert_config.json").write_text(json.dumps(of_texts | more))
    # It saves the tokenizer with the markers as special tokens.
    saved = Tokenizer.from_file(str(directory / "tokenizer.json"))
    saved.add_special_tokens(["[Q] ", "[D] "])
    saved.save(str(directory / "tokenizer.json"))


def stanfords(directory, **more):
    """The file that Stanford's library saves."""
    said = {
        "query_maxlen": QUERY,
        "doc_maxlen": DOCUMENT,
        "dim": WIDTH,
        "mask_punctuation": True,
        "similarity": "cosine",
    }
    (directory / "artifact.metadata").write_text(json.dumps(said | {"attend_to_mask_tokens": False} | more))


def write(directory, modules, configs):
    """Write modules.json and the folders of modules."""
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": kind} for index, (path, kind) in enumerate(modules)
    ]
    (directory / "modules.json").write_text(json.dumps(listed))
    for folder, config in configs.items():
        (directory / folder).mkdir(exist_ok=True)
        (directory / folder / "config.json").write_text(json.dumps(config))


def expected(layers, directory, text, *, is_query, markers=("[Q] ", "[D] "), fills=True, attends=False, skips=True):
    """The vectors of a text by the rules of these libraries: a marker behind [CLS], masks behind a query."""
    model, linear = layers
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    most = (QUERY if is_query else DOCUMENT) - 3
    inner = tokenizer.encode(text, add_special_tokens=False).ids[:most]
    ids = [CLS, VOCABULARY[markers[not is_query]], *inner, SEP]
    num_seen = len(ids)
    if is_query and fills:
        ids += [MASK] * (QUERY - len(ids))
        num_seen = len(ids) if attends else num_seen
    seen = (torch.arange(len(ids)) < num_seen).long()[None]
    with torch.inference_mode():
        places = model(input_ids=torch.tensor([ids]), attention_mask=seen).last_hidden_state[0]
        vectors = torch.nn.functional.normalize(linear(places), dim=-1)
    skipped = {VOCABULARY[mark] for mark in string.punctuation} if skips and not is_query else set()
    return vectors[[place for place, token in enumerate(ids) if token not in skipped]].numpy()


def served(directory, talk, **options):
    """Export a directory, and talk to the model of the bundle."""
    bundle = directory.parent / "bundle" / "1"
    export_checkpoint(directory, bundle, ExportOptions(**options))

    async def run():
        async with Loaded(bundle, slots=8) as model:
            return await talk(model)

    return asyncio.run(run())


def vectors_of(embedding):
    """The vectors of an answer, [tokens, dimensions]."""
    return np.array(embedding.token_vectors, np.float32).reshape(len(embedding.token_ids), -1)


OF_TEXTS = {
    "document_length": DOCUMENT,
    "query_expansion": {"strategy": "fixed", "attend": True, "token": None, "length": QUERY},
}
OF_PYLATE = {
    "prompts": {},
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": QUERY,
    "document_length": DOCUMENT,
    "do_query_expansion": True,
    "attend_to_expansion_tokens": True,
}
FILES = {
    "pylate": (pylates, {}, {}),
    "pylate-attends": (
        pylates,
        {"attend_to_expansion_tokens": True, "skiplist_words": []},
        {"attends": True, "skips": False},
    ),
    "pylate-fills-nothing": (pylates, {"do_query_expansion": False}, {"fills": False}),
    "pylate-by-its-first-module": (
        pylates,
        {"query_length": 30, "document_length": 31, "attend_to_expansion_tokens": False, "transformer": OF_TEXTS},
        {"attends": True},
    ),
    "sentence-transformers": (sentence_transformers, {}, {}),
    "sentence-transformers-by-its-model": (sentence_transformers, {"model": OF_PYLATE}, {"attends": True}),
    "sentence-transformers-fills-nothing": (
        sentence_transformers,
        {"model": OF_PYLATE | {"do_query_expansion": False}},
        {"fills": False},
    ),
    "stanford": (stanfords, {}, {"markers": ("[unused0]", "[unused1]")}),
    "stanford-attends": (
        stanfords,
        {"attend_to_mask_tokens": True, "mask_punctuation": False},
        {"markers": ("[unused0]", "[unused1]"), "attends": True, "skips": False},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_vectors_are_those_of_the_library_alone_and_together(tmp_path, name):
    """Of queries and documents, within 1e-5; a text has the same bits beside others. Scores are the sums of maxima."""
    files, more, rules = FILES[name]
    directory = tmp_path / "saved"
    directory.mkdir()
    layers = body(directory, of_stanford=files is stanfords)
    files(directory, **more)

    async def talk(model):
        found = {}
        for kind in ("query", "document"):
            asked = [{"text": text} for text in TEXTS]
            together = (await ask(model, inputs=asked, prompt_name=kind)).embeddings
            for text, embedding in zip(TEXTS, together, strict=True):
                (alone,) = (await ask(model, inputs=[{"text": text}], prompt_name=kind)).embeddings
                assert alone == embedding
                theirs = expected(layers, directory, text, is_query=kind == "query", **rules)
                assert theirs.shape == vectors_of(embedding).shape
                assert TOLERANCE >= np.abs(theirs - vectors_of(embedding)).max()
                found[kind, text] = theirs
        for query in TEXTS:
            matched = await score(model, text=query, target_text=TEXTS[0])
            products = found["query", query] @ found["document", TEXTS[0]].T
            assert products.max(axis=1).sum() == pytest.approx(matched.total, abs=1e-4)
            assert [each.score for each in matched.matches] == pytest.approx(products.max(axis=1), abs=TOLERANCE)
            assert len(matched.tokens) == len(matched.matches) == len(matched.token_ids)
            places = [each.place for each in matched.matches]
            assert TOLERANCE >= np.abs(products.max(axis=1) - products[range(len(places)), places]).max()

    served(directory, talk)


def test_a_score_is_a_mean_where_the_files_say_so_and_a_short_query_is_not_cut(tmp_path):
    """`meanmaxsim` divides by the query's tokens. `min` fills up a short query, and a longer one is taken whole."""
    directory = tmp_path / "saved"
    directory.mkdir()
    body(directory)
    expansion = {"strategy": "min", "attend": True, "length": 6}
    sentence_transformers(directory, similarity="meanmaxsim", query_length=18, query_expansion=expansion)

    async def talk(model):
        short, longer = "maria", "where is the small house and there a garden"
        matched = await score(model, text=short, target_text=TEXTS[0])
        assert 6 == len(matched.matches)
        mean = sum(each.score for each in matched.matches) / 6
        assert mean == pytest.approx(matched.total, abs=1e-6)
        assert 12 == len((await score(model, text=longer, target_text=TEXTS[0])).matches)

    served(directory, talk)


def test_a_file_of_pylate_may_ask_for_a_mean_too(tmp_path):
    """`meanmaxsim` in it is followed, as by sentence-transformers."""
    body(tmp_path)
    for name, averages in (("MaxSim", False), ("meanmaxsim", True)):
        pylates(tmp_path, similarity_fn_name=name)
        assert averages == convert(tmp_path, ExportOptions()).checkpoint.model.config.averages


def test_what_is_asked_wrongly_is_refused(tmp_path):
    """A kind that the model does not make, a text that is too long, a prompt that is none, and a score of nothing."""
    directory = tmp_path / "saved"
    directory.mkdir()
    body(directory)
    pylates(directory)
    whole = common_pb2.VECTOR_KIND_WHOLE

    async def talk(model):
        inputs = [{"text": "the house"}]
        for field, request in {
            "kinds[0]": {"inputs": inputs, "kinds": [whole]},
            "inputs[0].text": {"inputs": [{"text": "the " * 30}]},
            "prompt_name": {"inputs": inputs, "prompt_name": ""},
        }.items():
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, **request)
            assert field == refused.value.field
        with pytest.raises(InvalidRequest, match="is 13 tokens long; the model takes 12 of a 'query'"):
            await ask(model, inputs=[{"text": "the " * 10}], prompt_name="query")
        for field, request in {
            "target": {"text": "the"},
            "source": {"target_text": "the"},
            "num_top_tokens": {"text": "the", "target_text": "the", "num_top_tokens": 2},
            "target_text": {"text": "the", "target_text": " "},
        }.items():
            with pytest.raises(InvalidRequest) as refused:
                await score(model, **request)
            assert field == refused.value.field
        # Ids are read as they are: nothing stands around them, and none is left out.
        ids = [CLS, VOCABULARY["!"], SEP]
        (embedding,) = (await ask(model, inputs=[{"token_ids": {"ids": ids}}])).embeddings
        assert ids == list(embedding.token_ids)

    served(directory, talk)


def test_a_text_is_cut_to_its_side_where_that_is_asked_for(tmp_path):
    """With --truncate, a query has its own length and not that of documents, as in each of these libraries."""
    directory = tmp_path / "saved"
    directory.mkdir()
    layers = body(directory)
    pylates(directory)

    async def talk(model):
        text = "the house is small and there a garden behind it we eat bread where lives maria in lisbon the house"
        for kind in ("query", "document"):
            (embedding,) = (await ask(model, inputs=[{"text": text}], prompt_name=kind)).embeddings
            theirs = expected(layers, directory, text, is_query=kind == "query")
            assert theirs.shape == vectors_of(embedding).shape
            assert TOLERANCE >= np.abs(theirs - vectors_of(embedding)).max()

    served(directory, talk, truncate=True)


@pytest.mark.parametrize(
    ("files", "more", "complaint"),
    [
        (pylates, {"query_prefix": "[Z] "}, "'[Z] ', which stands before a query, is no token of the tokenizer"),
        (pylates, {"query_length": 50}, "queries are filled up to 50 tokens, and texts have at most 40"),
        (pylates, {"query_length": "a"}, "query_length is 'a', which cannot be followed"),
        (pylates, {"skiplist_words": "!"}, "skiplist_words is no list"),
        (pylates, {"truncate_dim": 4}, "truncate_dim is 4, which cannot be followed"),
        (pylates, {"similarity_fn_name": "dot"}, "similarity_fn_name is 'dot', which cannot be followed"),
        (sentence_transformers, {"query_expansion": {"strategy": "max"}}, "query_expansion is"),
        (stanfords, {"similarity": "l2"}, "similarity is 'l2', which cannot be followed"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path, files, more, complaint):
    """By the name of the file and of the field."""
    body(tmp_path, of_stanford=files is stanfords)
    files(tmp_path, **more)
    with pytest.raises(CheckpointError) as refused:
        convert(tmp_path, ExportOptions())
    assert complaint in str(refused.value)
