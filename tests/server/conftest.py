"""Tokenizers of three kinds, each as the server loads it, and as the library has it."""

import pytest

import tokenizer_kinds
from weft_server.auth import file_watch
from weft_server.preprocessing.tokenizer import Tokenizer


def _loaded(tmp_path_factory, reference):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    reference.save(str(path))
    return Tokenizer(path), reference


@pytest.fixture(autouse=True)
def _files_stand_still_at_once(monkeypatch):
    """A test has written its files when it starts a server. Those of this law itself say how long it takes."""
    monkeypatch.setattr(file_watch, "STILL_S", 0.0)


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory):
    """Ours and the library's own, of the same file."""
    return _loaded(tmp_path_factory, tokenizer_kinds.byte_level())


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    """Ours and the library's own, of the same file."""
    return _loaded(tmp_path_factory, tokenizer_kinds.words())


@pytest.fixture(scope="session")
def word_piece(tmp_path_factory):
    """Ours and the library's own, of the same file."""
    return _loaded(tmp_path_factory, tokenizer_kinds.word_piece())
