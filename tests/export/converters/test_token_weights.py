"""BGE-M3: the vector of a text, a vector of each token, and a weight of each, by FlagEmbedding's files.

It is held here to XLM-RoBERTa of transformers with FlagEmbedding's rules written out. On 2026-11-28 the same was held
to FlagEmbedding 1.4.2 itself: vectors, weights and scores within 1e-5.
"""

import asyncio
import json

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from loaded import Loaded, ask, score
from openai_calls import serving
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

WORDS = (
    *("the", "house", "is", "small", "and", "there", "a", "garden", "behind", "it"),
    *("we", "eat", "bread", "where", "lives", "maria", "in", "lisbon"),
)
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
PIECES = [*SPECIAL, "▁", *(f"▁{word}" for word in WORDS)]
UNWEIGHTED = [0, 1, 2, 3]
WIDTH = 32
# With words at several places, one that is unknown, and texts of several lengths.
TEXTS = (
    "the house and the garden",
    "maria",
    "where lives maria behind the ?? small house",
    "we eat maria lives maria eat we maria",
)
TOLERANCE = 1e-5
WHOLE, TOKENS, WEIGHTS = (getattr(common_pb2, f"VECTOR_KIND_{kind}") for kind in ("WHOLE", "TOKENS", "WEIGHTS"))


def saved(directory):
    """Save a random BGE-M3 as FlagEmbedding has it; return the body and both layers."""
    torch.manual_seed(1)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(PIECES),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=42,
        initializer_range=0.5,
    )
    model = transformers.XLMRobertaModel(config).eval()
    model.save_pretrained(directory)
    layers = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1)
    for layer, name in zip(layers, ("colbert_linear.pt", "sparse_linear.pt"), strict=True):
        torch.save(layer.state_dict(), directory / name)
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in PIECES], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    transformers.XLMRobertaTokenizerFast(tokenizer_object=tokenizer).save_pretrained(directory)
    modules(directory)
    return model, *layers


def modules(directory, *kinds, pooling="cls"):
    """The files of sentence-transformers."""
    kinds = kinds or ("Transformer", "Pooling", "Normalize")
    listed = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(listed))
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))


def expected(parts, directory, text):
    """The three kinds by FlagEmbedding's rules: tokens have vectors but for the first, and weights but for some."""
    model, of_vectors, of_weights = parts
    ids = transformers.AutoTokenizer.from_pretrained(directory)(text)["input_ids"]
    with torch.inference_mode():
        places = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        whole = torch.nn.functional.normalize(places[0], dim=0)
        vectors = torch.nn.functional.normalize(of_vectors(places[1:]), dim=-1)
        weights = torch.relu(of_weights(places))[:, 0].tolist()
    largest = {}
    for token, weight in zip(ids, weights, strict=True):
        if token not in UNWEIGHTED and weight > largest.get(token, 0):
            largest[token] = weight
    return ids, whole.numpy(), vectors.numpy(), largest


@pytest.fixture(scope="module")
def m3(tmp_path_factory):
    """A directory, what is in it, and a repository with its bundle."""
    folder = tmp_path_factory.mktemp("m3")
    directory = folder / "saved"
    directory.mkdir()
    parts = saved(directory)
    export_checkpoint(directory, folder / "repository" / "m3" / "1", ExportOptions())
    return directory, parts, folder / "repository"


def talked(m3, talk):
    """What somebody hears who talks to the model."""

    async def run():
        async with Loaded(m3[2] / "m3" / "1", slots=8) as model:
            return await talk(model)

    return asyncio.run(run())


def test_all_kinds_are_those_of_the_library_alone_and_together(m3):
    """Within 1e-5, and with the same bits beside other texts. Who asks for nothing gets the vector of the text."""
    directory, parts, _ = m3
    kinds = [WHOLE, TOKENS, WEIGHTS]

    async def talk(model):
        together = (await ask(model, inputs=[{"text": text} for text in TEXTS], kinds=kinds)).embeddings
        for text, embedding in zip(TEXTS, together, strict=True):
            (alone,) = (await ask(model, inputs=[{"text": text}], kinds=kinds)).embeddings
            assert alone == embedding
            ids, whole, vectors, weights = expected(parts, directory, text)
            assert ids[1:] == list(embedding.token_ids)
            assert TOLERANCE >= np.abs(whole - np.array(embedding.values)).max()
            found = np.array(embedding.token_vectors).reshape(vectors.shape)
            assert TOLERANCE >= np.abs(vectors - found).max()
            assert pytest.approx(dict(sorted(weights.items())), abs=TOLERANCE) == {
                each.token_id: each.weight for each in embedding.weights
            }
            (usual,) = (await ask(model, inputs=[{"text": text}])).embeddings
            assert list(usual.values) == list(embedding.values)
            assert not usual.token_ids
            assert not usual.weights
        # Some weight is there, some is not, and some word has the larger one of two.
        assert 0 < sum(len(each.weights) for each in together) < sum(len(each.token_ids) - 1 for each in together)

    talked(m3, talk)


def test_tokens_that_stand_for_no_word_have_no_weight(m3):
    """Wherever they are in ids, and whatever is around them. Other tokens have one."""
    order = torch.Generator().manual_seed(2)
    inputs = [{"token_ids": {"ids": torch.randperm(len(PIECES), generator=order).tolist()}} for _ in range(8)]

    async def talk(model):
        return (await ask(model, inputs=inputs, kinds=[WEIGHTS])).embeddings

    found = {each.token_id for embedding in talked(m3, talk) for each in embedding.weights}
    assert found == set(range(len(PIECES))) - set(UNWEIGHTED)


def test_a_score_is_the_mean_of_what_the_tokens_met(m3):
    """As compute_score has it of FlagEmbedding's vectors of tokens."""
    directory, parts, _ = m3

    async def talk(model):
        for text in TEXTS:
            (_, _, query, _), (_, _, document, _) = (expected(parts, directory, each) for each in (text, TEXTS[0]))
            matched = await score(model, text=text, target_text=TEXTS[0])
            assert (query @ document.T).max(axis=1).mean() == pytest.approx(matched.total, abs=TOLERANCE)

    talked(m3, talk)


def test_openai_s_door_gives_the_kinds_that_are_asked_for(m3):
    """The same numbers as by gRPC, and no others."""

    async def typed(model):
        return (await ask(model, inputs=[{"text": TEXTS[0]}], kinds=[WHOLE, TOKENS, WEIGHTS])).embeddings[0]

    async def by_http():
        async with serving(m3[2], "m3") as client:
            return [
                (await client.post("/v1/embeddings", model="m3", input=TEXTS[0], kinds=kinds))["data"][0]
                for kinds in (["whole", "tokens", "weights"], ["weights"])
            ]

    typed_answer = talked(m3, typed)
    everything, weights = asyncio.run(by_http())
    assert list(typed_answer.values) == everything["embedding"]
    assert list(typed_answer.token_vectors) == [number for row in everything["token_embeddings"] for number in row]
    assert {str(each.token_id): each.weight for each in typed_answer.weights} == everything["token_weights"]
    assert everything["token_weights"] == weights["token_weights"]
    assert weights.keys().isdisjoint({"embedding", "token_embeddings", "token_ids"})


def test_a_chosen_pooling_makes_one_vector_of_a_text(m3):
    """Then both layers are left alone."""
    config = convert(m3[0], ExportOptions(pooling="cls")).checkpoint.model.config
    assert config.tokens is None
    assert config.weighs is None


def test_weights_are_held_to_their_own_size(tmp_path):
    """At fp16 large weights are off by more than vectors are, and are as right: else this would fail by 0.048."""
    directory = tmp_path / "saved"
    directory.mkdir()
    saved(directory)
    layer = torch.load(directory / "sparse_linear.pt", weights_only=True)
    torch.save({"weight": 300 * layer["weight"], "bias": layer["bias"]}, directory / "sparse_linear.pt")
    report = export_checkpoint(directory, tmp_path / "m3" / "1", ExportOptions(precision="fp16"))
    assert report.manifest.parity.max_abs_error < 0.015


def test_other_ends_and_other_layers_are_refused(tmp_path):
    """By the name of the file. One of both layers alone is not used, as in FlagEmbedding."""
    saved(tmp_path)
    modules(tmp_path, pooling="mean")
    with pytest.raises(CheckpointError, match=r"beside colbert_linear\.pt the first token is pooled"):
        convert(tmp_path, ExportOptions())
    modules(tmp_path, "Transformer", "Pooling")
    with pytest.raises(CheckpointError, match=r"beside colbert_linear\.pt the first token is pooled"):
        convert(tmp_path, ExportOptions())
    modules(tmp_path)
    torch.save(torch.nn.Linear(WIDTH, 8).state_dict(), tmp_path / "colbert_linear.pt")
    with pytest.raises(CheckpointError, match=r"colbert_linear\.pt has .* of 32 to 32 numbers is needed"):
        convert(tmp_path, ExportOptions())
    (tmp_path / "colbert_linear.pt").unlink()
    assert convert(tmp_path, ExportOptions()).checkpoint.model.config.weighs is None
