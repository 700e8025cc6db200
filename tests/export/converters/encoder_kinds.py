"""The table of kinds that classify texts, tag tokens or embed: rows for each, which draw configs of odd sizes."""

import json

from hf_models import PAD, VOCAB, Kind

MASK = "<end>"
LABELS = {0: "no", 1: "yes", 2: "perhaps"}


def labelled(rng):
    """Draw what all of them have."""
    return {
        "vocab_size": VOCAB,
        "id2label": LABELS,
        "label2id": {label: index for index, label in LABELS.items()},
        "pad_token_id": PAD,
        "max_position_embeddings": 48,
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "attn_implementation": "eager",
    }


def bert(rng):
    """Draw a BERT."""
    heads = rng.choice([2, 3])
    return labelled(rng) | {
        "num_attention_heads": heads,
        "hidden_size": heads * rng.choice([8, 11]),
        "intermediate_size": rng.choice([40, 65]),
        "hidden_act": rng.choice(["gelu", "relu", "gelu_new"]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5]),
        "type_vocab_size": rng.choice([1, 2]),
    }


def roberta(rng):
    """Draw a RoBERTa: padding is token 1, and the first position row 2."""
    return bert(rng) | {"pad_token_id": 1}


def mpnet(rng):
    """Draw an MPNet."""
    sizes = roberta(rng)
    del sizes["type_vocab_size"]
    return sizes


def electra(rng):
    """Draw an ELECTRA with words of any width."""
    sizes = bert(rng)
    return sizes | {"embedding_size": rng.choice([sizes["hidden_size"], 13])}


def albert(rng):
    """Draw an ALBERT."""
    sizes = bert(rng)
    return sizes | {"embedding_size": rng.choice([sizes["hidden_size"], 13])}


def distilbert(rng):
    """Draw a DistilBERT."""
    heads = rng.choice([2, 3])
    sizes = labelled(rng) | {
        "n_layers": rng.choice([1, 2, 3]),
        "n_heads": heads,
        "dim": heads * rng.choice([8, 12]),
        "hidden_dim": rng.choice([40, 65]),
        "activation": rng.choice(["gelu", "relu"]),
    }
    del sizes["num_hidden_layers"]
    return sizes


def modernbert(rng):
    """Draw a ModernBERT whose windows are shorter than texts."""
    heads = rng.choice([2, 3])
    return labelled(rng) | {
        "num_hidden_layers": rng.choice([2, 4]),
        "num_attention_heads": heads,
        "hidden_size": heads * rng.choice([8, 16]),
        "intermediate_size": rng.choice([40, 65]),
        "local_attention": rng.choice([4, 8]),
        "norm_bias": rng.random() < 0.5,
        "attention_bias": rng.random() < 0.5,
        "mlp_bias": rng.random() < 0.5,
        "classifier_bias": rng.random() < 0.5,
        "classifier_pooling": rng.choice(["cls", "mean"]),
        "bos_token_id": 2,
        "eos_token_id": 3,
        "cls_token_id": 2,
        "sep_token_id": 3,
    }


def nomic_bert(rng):
    """Draw a NomicBERT."""
    heads = rng.choice([2, 3])
    return bert(rng) | {
        "num_attention_heads": heads,
        "hidden_size": heads * rng.choice([8, 16]),
        "hidden_act": rng.choice(["silu", "gelu"]),
        "rope_parameters": {"rope_type": "default", "rope_theta": rng.choice([1000.0, 50.0])},
    }


def gte(rng):
    """Draw a GTE, with a vector for the first segment or without one."""
    heads = rng.choice([2, 3])
    return bert(rng) | {
        "num_attention_heads": heads,
        "hidden_size": heads * rng.choice([8, 16]),
        "hidden_act": rng.choice(["silu", "gelu"]),
        "type_vocab_size": rng.choice([0, 1]),
        "rope_parameters": {"rope_type": "default", "rope_theta": rng.choice([160000.0, 50.0])},
    }


def deberta(rng):
    """Draw a DeBERTa of version 2 or 3, with longer texts than offsets that have a vector."""
    sizes = bert(rng)
    return sizes | {
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
        "relative_attention": True,
        "pos_att_type": rng.choice(["c2p|p2c", ["p2c", "c2p"], ["c2p"], "p2c"]),
        "position_buckets": rng.choice([8, 16, -1]),
        "max_relative_positions": rng.choice([-1, 24, 40]),
        "position_biased_input": rng.random() < 0.5,
        "share_att_key": rng.random() < 0.5,
        "norm_rel_ebd": rng.choice(["layer_norm", "none"]),
        "pooler_hidden_size": sizes["hidden_size"],
    }


def spans(draw):
    """Draw a model with two labels, where an answer starts and where it ends."""
    return lambda rng: {**draw(rng), "id2label": {0: "LABEL_0", 1: "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}


def words(draw):
    """Draw a masked language model whose table is its head's or is not, and with a bias or without."""

    def drawn(rng):
        sizes = {**draw(rng), "tie_word_embeddings": rng.random() < 0.5}
        return sizes | ({"decoder_bias": rng.random() < 0.5} if "classifier_bias" in sizes else {})

    return drawn


def masking(directory):
    """Let a special token that the random tokenizer has be the mask."""
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mask_token": MASK}))


_STEMS = [
    ("Bert", bert),
    ("Roberta", roberta),
    ("XLMRoberta", roberta),
    ("Camembert", roberta),
    ("DistilBert", distilbert),
    ("Electra", electra),
    ("Albert", albert),
    ("MPNet", mpnet),
    ("ModernBert", modernbert),
    ("DebertaV2", deberta),
    ("NomicBert", nomic_bert),
    ("Gte", gte),
]
CLASSIFIERS = [Kind(stem.lower(), f"{stem}ForSequenceClassification", draw) for stem, draw in _STEMS]
TAGGERS = [Kind(f"{stem.lower()}-tags", f"{stem}ForTokenClassification", draw) for stem, draw in _STEMS]
EXTRACTORS = [Kind(f"{stem.lower()}-spans", f"{stem}ForQuestionAnswering", spans(draw)) for stem, draw in _STEMS[:-2]]
FILLERS = [Kind(f"{stem.lower()}-masks", f"{stem}ForMaskedLM", words(draw)) for stem, draw in _STEMS]
EMBEDDERS = [
    *(Kind(f"{stem.lower()}-body", f"{stem}Model", draw) for stem, draw in _STEMS),
    *(Kind(f"{stem.lower()}-words", f"{stem}ForMaskedLM", draw) for stem, draw in _STEMS),
]
