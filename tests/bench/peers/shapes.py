"""The models that generate and classify: random weights of the published shapes, as our checkpoints."""

from tiny_parts import END, PAD, image_spec, picture, randomised, word_tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.bert import Bert, BertConfig
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.families.vit import Vit, VitConfig
from weft_proto.v1 import bundle_pb2

LLAMA_VOCAB, BERT_VOCAB = 32_000, 30_522
LLAMA_TOKENS, BERT_TOKENS = 256, 512  # positions
LABELS = ("science", "sport", "culture", "trade")
# Answers then differ from request to request, and parity has room; what a run costs does not depend on it.
GAIN = 0.7
# With the other gain, a generator whose embedding is its projection too soon writes one word for ever.
LIVELY = 1.5


def words(vocab_size):
    """The words of a tokenizer whose word w<i> has the id i + 4, behind [PAD], [UNKNOWN], [START] and [END]."""
    return [f"w{index}" for index in range(vocab_size - 4)]


def llama():
    """A generator of Llama's architecture and GPT-2's size: 97 million weights, a quarter of them the embedding."""
    config = CausalLmConfig(
        vocab_size=LLAMA_VOCAB,
        max_tokens=LLAMA_TOKENS,
        d_model=768,
        num_heads=12,
        num_kv_heads=4,
        d_ff=2048,
        num_layers=12,
    )
    return Checkpoint(
        family="causal_lm",
        description="Random weights of Llama's shape, for benchmarks.",
        model=randomised(CausalLm(config), LIVELY),
        golden=bundle_pb2.Golden(text="w36 w37 w38"),  # its first token is a clear one
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=LLAMA_VOCAB,
            target_vocab_size=LLAMA_VOCAB,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=LLAMA_TOKENS,
            max_new_tokens=LLAMA_TOKENS - 1,
        ),
        max_new_tokens=64,
        attention_layer=11,
        files={"tokenizer.json": word_tokenizer(words(LLAMA_VOCAB), ends=False)},
    )


def bert():
    """A text classifier of BERT-base's shape (Devlin et al. 2019)."""
    config = BertConfig(
        vocab_size=BERT_VOCAB,
        num_labels=len(LABELS),
        max_tokens=BERT_TOKENS,
        d_model=768,
        num_heads=12,
        d_ff=3072,
        num_layers=12,
    )
    return Checkpoint(
        family="bert",
        description="Random weights of BERT-base's shape, for benchmarks.",
        model=randomised(Bert(config), GAIN),
        golden=bundle_pb2.Golden(text="w1 w2 w3"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            source_vocab_size=BERT_VOCAB,
            pad_id=PAD,
            max_source_tokens=BERT_TOKENS,
        ),
        labels=LABELS,
        files={"tokenizer.json": word_tokenizer(words(BERT_VOCAB), ends=True)},
    )


def vit():
    """An image classifier of ViT-base/16's shape at 224 pixels (Dosovitskiy et al. 2021)."""
    config = VitConfig(
        num_labels=1000,
        channels=3,
        image_height=224,
        image_width=224,
        patch_size=16,
        d_model=768,
        num_heads=12,
        d_ff=3072,
        num_layers=12,
    )
    return Checkpoint(
        family="vit",
        description="Random weights of ViT-base's shape, for benchmarks.",
        model=randomised(Vit(config), GAIN),
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=image_spec(3, 224, 224, 16),
        labels=tuple(f"class {index}" for index in range(config.num_labels)),
        files={"golden.png": picture(224, 224)},
    )


SHAPES = {"llama": llama, "bert": bert, "vit": vit}
