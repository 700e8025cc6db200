"""What the exporter writes, the server accepts: both read bundle.proto the same way."""

from tiny import CHECKPOINTS

from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.bundle.repository import scan_repository
from weft_server.preprocessing.tokenizer import Tokenizer


def test_the_server_accepts_every_bundle_of_the_exporter(whole_tiny_repository):
    """A bundle of each family is found and verified, and its tokenizers give no id that the graphs do not know."""
    scan = scan_repository(whole_tiny_repository)
    assert [] == scan.oddities
    assert sorted(path.name for path in whole_tiny_repository.iterdir()) == [each.name for each in scan.candidates]
    assert {each.name for each in scan.candidates} <= set(CHECKPOINTS)
    for candidate in scan.candidates:
        bundle = load_bundle(candidate.directory)
        assert candidate[:2] == (bundle.name, bundle.version)
        text = bundle.manifest.text
        if text.source_tokenizer:
            assert Tokenizer(bundle.path(text.source_tokenizer)).num_ids <= text.source_vocab_size
        heads = CHECKPOINTS[bundle.name]().model.attention_heads
        assert list(heads) == list(bundle.manifest.attention.heads)
        assert bool(heads) == (bundle.graph(bundle_pb2.GRAPH_ROLE_EXPLAIN) is not None)
