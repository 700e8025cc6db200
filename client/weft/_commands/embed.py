"""`weft embed`: texts and pictures as vectors."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer

from weft import _show as show
from weft._files.kind import TEXT, Kind
from weft._files.options import Files
from weft._model import VectorKind
from weft._options import PromptName, Request, read_argument
from weft._verbs.embed import EMBED_ONE, Embeddings, EmbedOptions
from weft.exceptions import InvalidRequest


def _numbers(vector: Sequence[float]) -> str:
    """Return a vector as a line of numbers with spaces between them."""
    return " ".join(f"{value:.7g}" for value in vector)


def _lines(answer: Embeddings, place: int) -> list[str]:
    """Return the vector of an input; or its tokens' vectors and weights, each behind the id of its token."""
    whole = [_numbers(answer.vectors[place])] if answer.vectors[place] else []
    pairs = zip(answer.token_ids[place], answer.token_vectors[place], strict=True)
    vectors = [f"{token}\t{_numbers(vector)}" for token, vector in pairs]
    return whole + vectors + [f"{token}\t{weight:.7g}" for token, weight in answer.token_weights[place].items()]


LINES = Kind(
    EMBED_ONE,
    inputs=(*TEXT, "image"),
    takes=EmbedOptions,
    title="embedding",
    fields=lambda answer: [line for place in range(len(answer.vectors)) for line in _lines(answer, place)],
)


def embed(
    inputs: Annotated[
        list[str] | None, typer.Argument(show_default=False, help="Texts. A dash (-) reads one from stdin.")
    ] = None,
    *,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="The inputs, or the lines of --file, are paths of pictures.")
    ] = False,
    dimensions: Annotated[
        int | None,
        typer.Option("--dimensions", min=1, help="Cut each vector to this number of dimensions. By default all."),
    ] = None,
    prompt_name: PromptName = None,
    kinds: Annotated[
        list[VectorKind] | None,
        typer.Option(
            "--kind",
            show_default=False,
            help="What to print of a model that makes several: whole, tokens or weights. It may be given again.",
        ),
    ] = None,
    cosines: Annotated[
        bool, typer.Option("--cosines", help="Print the cosine of each pair of inputs instead, most alike first.")
    ] = False,
    files: Files,
    request: Request,
) -> None:
    """Turn texts or pictures into vectors.

    For example: weft embed "a red cross" "a blue box"

    They are near each other where the inputs mean alike. Each is a line of numbers. Vectors and weights of tokens are a
    line for each, with the token's id and a tab before it.
    """
    asked: EmbedOptions = {
        **request.options(),
        "dimensions": dimensions,
        "prompt_name": prompt_name,
        "kinds": kinds or None,
    }
    if request.scores:
        raise InvalidRequest("--scores: vectors have none")
    if files.is_asked({"a text": inputs or None}):
        never = {"--cosines": cosines, "--kind": kinds, **request.for_one()}
        what = (LINES, request, asked)
        files.run(*what, as_json=request.as_json, are_pictures=pictures, wants_json={}, never=never)
    given = inputs or []
    if cosines and request.as_json:
        raise InvalidRequest("--cosines does not go with --json")
    if cosines and len(given) < 2:
        raise InvalidRequest("--cosines needs two inputs or more")
    sources: dict[str, Any] = {"images": given} if pictures else {"texts": [read_argument(text) for text in given]}
    with request.client() as client, show.patience(LINES.title):
        answer = client.embed(**sources, **asked)
    _print(answer, given, cosines=cosines, as_json=request.as_json)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=given[0], image=Path(given[0]) if pictures else None)


def _print(answer: Embeddings, names: Sequence[str], *, cosines: bool, as_json: bool) -> None:
    """Print a line of numbers for each input; or a line for each pair, most alike first: cosine and both, with tabs."""
    if as_json:
        show.emit_json(answer)
        return
    if not cosines:
        for place in range(len(answer.vectors)):
            for line in _lines(answer, place):
                show.emit(line)
        return
    if not all(answer.vectors):
        raise InvalidRequest("--cosines: there is no vector of a whole text; `weft score` compares two")
    pairs = [(answer.cosine(*pair), *pair) for pair in combinations(range(len(names)), 2)]
    for cosine, *pair in sorted(pairs, key=lambda each: -each[0]):
        show.emit("\t".join((f"{cosine:.4f}", *(" ".join(names[place].split()) for place in pair))))
