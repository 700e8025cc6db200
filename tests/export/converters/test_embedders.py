"""Embedders of others: our vectors are those of transformers, pooled as the files of sentence-transformers say."""

import asyncio
import json

import pytest
import safetensors.torch
import torch
import transformers
from decoder_kinds import BODIES, DECODERS
from encoder_kinds import EMBEDDERS
from hf_models import LOGITS, NUM_LONG, VOCAB, change_config, converted, furthest, made, token_rows
from picture_kinds import CLIP_ALONE, DINOV2, REGISTERS, SIGLIP_ALONE, VIT_BODY
from test_pictures import made_with_processor

from loaded import Loaded, ask
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

LENGTHS = (7, 2, 40, 12)
BERT = EMBEDDERS[0]
POOLED = {
    "cls": lambda places: places[0],
    "mean": lambda places: places.mean(dim=0),
    "last": lambda places: places[-1],
    "max": lambda places: places.max(dim=0).values,
}
FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken", "max": "max_tokens"}


def batch(seed=0):
    """Random texts, right-padded, and their lengths."""
    texts = [torch.tensor(row) for row in token_rows(VOCAB, LENGTHS, seed)]
    together = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return texts, (together, torch.tensor(LENGTHS, dtype=torch.int32))


def check(kind, seed, directory):
    """Hold one random body to transformers; our texts lie padded in one batch, theirs alone."""
    theirs = made(kind, seed, directory)
    pooling = list(POOLED)[seed % len(POOLED)]
    ours = converted(directory, pooling=pooling)
    texts, source = batch(seed)
    with torch.inference_mode():
        vectors = ours.model(*source)
        for text, vector in zip(texts, vectors, strict=True):
            pooled = POOLED[pooling](theirs.base_model(input_ids=text[None]).last_hidden_state[0])
            assert LOGITS >= furthest(vector, torch.nn.functional.normalize(pooled, dim=0))
    assert common_pb2.TASK_EMBED_TEXT == ours.task


@pytest.mark.parametrize("kind", EMBEDDERS, ids=lambda kind: kind.name)
def test_a_body_embeds_as_transformers_does(kind, tmp_path):
    """Vectors within 1e-4, of a body alone, or of one that was saved under a head for words."""
    check(kind, EMBEDDERS.index(kind), tmp_path)


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.name)
def test_so_does_a_decoders_body(kind, tmp_path):
    """Which most read at the last token."""
    check(kind, 2 + 4 * BODIES.index(kind), tmp_path)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_decoder_that_is_not_causal_reads_both_ways(pooling, tmp_path):
    """As gte-Qwen2 says it: transformers 5 reads is_causal of each decoder, and no generator may say so here."""
    (kind,) = (kind for kind in BODIES if kind.name == "llama-body")
    made(kind, 3, tmp_path)
    causal = converted(tmp_path, pooling=pooling)
    change_config(tmp_path, is_causal=False)
    theirs = transformers.LlamaModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ours = converted(tmp_path, pooling=pooling)
    texts, source = batch()
    with torch.inference_mode():
        vectors, others = ours.model(*source), causal.model(*source)
        for text, vector in zip(texts, vectors, strict=True):
            pooled = POOLED[pooling](theirs(input_ids=text[None]).last_hidden_state[0])
            assert LOGITS >= furthest(vector, torch.nn.functional.normalize(pooled, dim=0))
    assert furthest(vectors, others) > 100 * LOGITS


@pytest.mark.long
def test_such_a_vector_has_the_same_bits_in_any_batch(tmp_path):
    """Beside texts of other lengths, and alone."""
    (kind,) = (kind for kind in BODIES if kind.name == "llama-body")
    (tmp_path / "both").mkdir()
    made(kind, 3, tmp_path / "both")
    change_config(tmp_path / "both", is_causal=False)
    bundle = tmp_path / "models" / "model" / "1"
    export_checkpoint(tmp_path / "both", bundle, ExportOptions(pooling="mean", max_tokens=96))
    inputs = [{"token_ids": {"ids": row}} for row in token_rows(VOCAB, (1, 7, 8, 9, 30, 63, 64, 65, 66, 90, 91))]

    async def run():
        async with Loaded(bundle) as model:
            together = (await ask(model, inputs=inputs)).embeddings
            return together, [(await ask(model, inputs=[each])).embeddings[0] for each in inputs]

    together, alone = asyncio.run(run())
    assert list(together) == alone


def test_windows_that_look_both_ways_are_refused_by_name(tmp_path):
    """Of Mistral's kind, whose layers look back."""
    (kind,) = (kind for kind in BODIES if kind.name == "mistral-body")
    made(kind, 0, tmp_path)
    change_config(tmp_path, is_causal=False, sliding_window=8)
    with pytest.raises(CheckpointError, match="is_causal is False: it is not supported for a model with windows"):
        converted(tmp_path, pooling="mean")


def test_a_generator_is_an_embedder_where_a_pooling_is_said(tmp_path):
    """By modules.json or by --pooling. Without both it generates."""
    (qwen3,) = (kind for kind in DECODERS if kind.name == "qwen3")
    theirs = made(qwen3, 0, tmp_path)
    assert common_pb2.TASK_GENERATE == converted(tmp_path).task
    described(tmp_path, "Pooling", "Normalize", pooling="last")
    ours = converted(tmp_path)
    texts, source = batch()
    with torch.inference_mode():
        vectors = ours.model(*source)
        for text, vector in zip(texts, vectors, strict=True):
            last = theirs.base_model(input_ids=text[None]).last_hidden_state[0, -1]
            assert LOGITS >= furthest(vector, torch.nn.functional.normalize(last, dim=0))
    assert "decoder_embedder" == ours.family


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", [*EMBEDDERS, *BODIES], ids=lambda kind: kind.name)
def test_so_do_random_bodies(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)


def described(directory, *kinds, pooling="mean", words=False):
    """Write modules.json and a folder for each module, as sentence-transformers does; of the new words or the old."""
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for index, kind in enumerate(kinds, 1):
        path = f"{index}_{kind}"
        (directory / path).mkdir()
        modules.append({"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"})
        if kind == "Pooling":
            config = {f"pooling_mode_{flag}": name == pooling for name, flag in FLAGS.items()}
            if words:
                config = {"embedding_dimension": 32, "pooling_mode": {"last": "lasttoken"}.get(pooling, pooling)}
            (directory / path / "config.json").write_text(json.dumps(config))
    (directory / "modules.json").write_text(json.dumps(modules))


def dense(folder, d_in, d_out, activation):
    """Write a Dense module, and return it."""
    config = {"in_features": d_in, "out_features": d_out, "bias": True, "activation_function": activation}
    (folder / "config.json").write_text(json.dumps(config))
    layer = torch.nn.Linear(d_in, d_out)
    weights = {f"linear.{name}": tensor.detach() for name, tensor in layer.named_parameters()}
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    return layer


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("pooling", POOLED)
def test_the_files_of_sentence_transformers_are_followed(tmp_path, pooling, normalizes, words):
    """Pooling, a Dense layer with tanh and one without, Normalize; the text's length; what a person has to do."""
    theirs = made(BERT, 0, tmp_path)
    width = theirs.config.hidden_size
    described(tmp_path, "Pooling", "Dense", "Dense", *["Normalize"] * normalizes, pooling=pooling, words=words)
    first = dense(tmp_path / "2_Dense", width, 9, "torch.nn.modules.activation.Tanh")
    second = dense(tmp_path / "3_Dense", 9, 5, "torch.nn.modules.linear.Identity")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 44, "do_lower_case": false}')
    ours = converted(tmp_path)
    texts, source = batch()
    with torch.inference_mode():
        vectors = ours.model(*source)
        for text, vector in zip(texts, vectors, strict=True):
            pooled = POOLED[pooling](theirs(input_ids=text[None]).last_hidden_state[0])
            expected = second(torch.tanh(first(pooled)))
            expected = torch.nn.functional.normalize(expected, dim=0) if normalizes else expected
            assert LOGITS >= furthest(vector, expected)
    config = ours.model.config
    assert (5, normalizes, 44, 44) == (
        config.dimensions,
        config.normalized,
        config.max_tokens,
        ours.text.max_source_tokens,
    )


def pooled_by(**config):
    """Change the folder of the pooling."""
    return lambda directory: (directory / "1_Pooling" / "config.json").write_text(json.dumps(config))


def listed(value):
    """Change modules.json."""
    return lambda directory: (directory / "modules.json").write_text(json.dumps(value))


TRANSFORMER, POOLING = (
    {"path": path, "type": f"sentence_transformers.models.{kind}"}
    for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"))
)
REFUSED = [
    (lambda directory: (directory / "modules.json").unlink(), "has no modules.json of sentence-transformers"),
    (listed({}), "holds no list"),
    (listed([TRANSFORMER]), "lists Transformer; a Transformer and a Pooling"),
    (listed([TRANSFORMER, TRANSFORMER]), "lists Transformer, Transformer; a Transformer and a Pooling are supported"),
    (
        listed([TRANSFORMER, POOLING, {"path": "2_CNN", "type": "sentence_transformers.models.CNN"}]),
        "lists Transformer, Pooling, CNN",
    ),
    (listed([TRANSFORMER, {"path": "../../etc", "type": "x.Pooling"}]), r"'../../etc', which is not in the same"),
    (
        listed([{"path": "0_T", "type": "sentence_transformers.models.Transformer"}, POOLING]),
        "is supported in the same directory alone",
    ),
    (pooled_by(), "pools by nothing"),
    (pooled_by(pooling_mode_cls_token=True, pooling_mode_max_tokens=True), "pools by pooling_mode_cls_token, pooling"),
    (pooled_by(pooling_mode_weightedmean_tokens=True), "pools by pooling_mode_weightedmean_tokens"),
    (pooled_by(pooling_mode=["mean"]), "pools by"),
]


@pytest.mark.parametrize(("change", "complaint"), REFUSED, ids=[complaint for _, complaint in REFUSED])
def test_what_is_not_supported_is_named(tmp_path, change, complaint):
    """No silently different model: the file and the cause."""
    made(BERT, 0, tmp_path)
    described(tmp_path, "Pooling")
    change(tmp_path)
    with pytest.raises(CheckpointError, match=complaint):
        converted(tmp_path)


def test_a_pooling_is_chosen_for_bodies_alone(tmp_path):
    """A classifier has a head of its own."""
    made(BERT, 0, tmp_path)
    change_config(tmp_path, architectures=["BertForSequenceClassification"])
    with pytest.raises(CheckpointError, match="pooling is chosen for the body of an encoder, not for BertForSeq"):
        converted(tmp_path, pooling="mean")


def test_clips_image_encoder_embeds_as_transformers_does(tmp_path):
    """image_embeds, of length 1."""
    theirs, pixels = made_with_processor(CLIP_ALONE, 0, tmp_path)
    ours = converted(tmp_path)
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(theirs(pixels).image_embeds, dim=-1)
        assert LOGITS >= furthest(ours.model(pixels), expected)
    assert common_pb2.TASK_EMBED_IMAGE == ours.task


def check_siglip(seed, directory):
    """Hold one random image encoder of SigLIP to transformers."""
    theirs, pixels = made_with_processor(SIGLIP_ALONE, seed, directory)
    ours = converted(directory)
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(theirs(pixels).pooler_output, dim=-1)
        assert LOGITS >= furthest(ours.model(pixels), expected)
    assert common_pb2.TASK_EMBED_IMAGE == ours.task


def test_siglips_image_encoder_embeds_as_transformers_does(tmp_path):
    """pooler_output, of length 1: what a learned query reads. Without one, there is no vector, and a refusal."""
    check_siglip(0, tmp_path)
    change_config(tmp_path, vision_use_head=False)
    with pytest.raises(CheckpointError, match="vision_use_head is False: it is not supported; only True is"):
        converted(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
def test_so_do_random_ones(seed, tmp_path):
    """The same law for twenty random configurations."""
    check_siglip(seed, tmp_path)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", [VIT_BODY, DINOV2, REGISTERS], ids=lambda kind: kind.name)
def test_the_body_of_a_vision_transformer_embeds_as_transformers_does(kind, pooling, tmp_path):
    """Its class token, or the mean of its patches, of length 1; of DINOv2 at another size than it was trained at."""
    theirs, pixels = made_with_processor(kind, 0, tmp_path)
    num_tokens = 1 + getattr(theirs.config, "num_register_tokens", 0)
    if kind in (DINOV2, REGISTERS):
        side = 2 * theirs.config.patch_size
        processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
        processor |= {"size": {"height": side, "width": side}, "do_center_crop": False}
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
        pixels = pixels[:, :, :1, :1].expand(-1, -1, side, side) + torch.randn(1, pixels.shape[1], side, side)
    with pytest.raises(CheckpointError, match="choose --pooling cls or mean"):
        converted(tmp_path)
    ours = converted(tmp_path, pooling=pooling)
    with torch.inference_mode():
        places = theirs(pixels).last_hidden_state
        expected = places[:, 0] if pooling == "cls" else places[:, num_tokens:].mean(dim=1)
        assert LOGITS >= furthest(ours.model(pixels), torch.nn.functional.normalize(expected, dim=-1))
    assert common_pb2.TASK_EMBED_IMAGE == ours.task
