"""BERT against torch's own layers, its padding, and its attention rollout."""

import dataclasses

import pytest
import torch
from tiny_bert import MAX_TOKENS, VOCAB_SIZE, tiny_bert, tiny_tags
from torch_layers import torch_layer

from weft_export.families.bert import BertTagger

SUMMARY = torch.tensor([-1])


def embedded(body, ids):
    """Embed ids by BERT's formula: LN(E[token] + P[position])."""
    return body.norm(body.embedding.tokens.weight[ids] + body.embedding.positions.weight[: ids.shape[1]])


@torch.no_grad()
def test_bert_is_torchs_own_layers():
    """Embedding, norm and post-norm layers with GELU, over ragged rows, then pooler or nothing, then the head."""
    ids, lengths = torch.randint(VOCAB_SIZE, (3, 12)), torch.tensor([12, 5, 1])
    padding = torch.arange(12) >= lengths[:, None]
    for checkpoint in (tiny_bert(), tiny_tags()):
        model = checkpoint.model
        x = embedded(model.body, ids)
        for layer in model.body.encoder.layers:
            x = torch_layer(layer, model.config, pre_norm=False)(x, src_key_padding_mask=padding)
        if isinstance(model, BertTagger):
            torch.testing.assert_close(model(ids, lengths)[~padding], model.head(x)[~padding], atol=1e-5, rtol=1e-4)
        else:
            expected = model.head(torch.tanh(model.pooler(x[:, 0])))
            torch.testing.assert_close(model(ids, lengths), expected, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("length", [1, 7, MAX_TOKENS])
def test_padding_changes_nothing(length):
    """What stands behind a text's end, were it beyond the last position, has no influence on its tokens."""
    ids = torch.randint(VOCAB_SIZE, (1, MAX_TOKENS + 2))
    for checkpoint in (tiny_bert(), tiny_tags()):
        padded = checkpoint.model(ids, torch.tensor([length]))
        alone = checkpoint.model(ids[:, :length], torch.tensor([length]))
        if isinstance(checkpoint.model, BertTagger):
            padded = padded[:, :length]

        torch.testing.assert_close(padded, alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rollout_follows_the_paper():
    """Rollout is (A_L + I)/2 ... (A_1 + I)/2 with torch's own attention weights averaged over heads; [CLS] is row 0."""
    ids, lengths = torch.randint(VOCAB_SIZE, (1, 9)), torch.tensor([9])
    tagger, classifier = tiny_tags().model, tiny_bert().model
    for model in (tagger, classifier):
        x, expected = embedded(model.body, ids), torch.eye(9)
        for layer in model.body.encoder.layers:
            theirs = torch_layer(layer, model.config, pre_norm=False)
            _, weights = theirs.self_attn(x, x, x)
            expected = (weights[0] + torch.eye(9)) / 2 @ expected
            x = theirs(x)
        rows = 9 if model is tagger else 1

        actual, mass = model.explain(SUMMARY, SUMMARY, ids, lengths)

        torch.testing.assert_close(actual, expected[:rows], atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(mass, torch.ones(rows))


@torch.no_grad()
def test_a_head_is_torchs_own():
    """Asked for one layer and head, a tagger's rows are the weights of that head in torch's own attention."""
    ids, model = torch.randint(VOCAB_SIZE, (1, 9)), tiny_tags().model
    first, second, _ = (torch_layer(layer, model.config, pre_norm=False) for layer in model.body.encoder.layers)
    x = first(embedded(model.body, ids))
    _, every_head = second.self_attn(x, x, x, average_attn_weights=False)

    actual, _ = model.explain(torch.tensor([1]), torch.tensor([0]), ids, torch.tensor([9]))

    torch.testing.assert_close(actual, every_head[0, 0], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"d_model": 33}, "multiple of num_heads"),
        ({"num_labels": 0}, "num_labels must be"),
        ({"norm_eps": 0.0}, "norm_eps must be"),
        ({"dropout": 1.0}, "dropout must be"),
    ],
)
def test_sizes_that_cannot_work_are_refused(change, complaint):
    """A config that no graph can be made of raises ValueError with the size's name."""
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(tiny_bert().model.config, **change)
