"""`classify`: the labels of a text or of a picture."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Unpack

from weft._answers import reader
from weft._brief import Brief
from weft._fields import refusal
from weft._requests import fill_options, fill_text, image_of, texts_of, two_of
from weft._types import Alignment, LabelScoring, PictureFile, ResolvedModel, Text, Timings, Usage
from weft._verbs.options import Options
from weft._verbs.verb import Verb
from weft.exceptions import InvalidRequest
from weft_proto.v1 import classification_pb2


class ClassifyOptions(Options, total=False):
    """What a classification takes besides.

    `top_k` is how many labels to return at most, by default all of them up to 5; all of them where they do not exclude
    each other. `threshold` is the least score of a label that is returned. By default it is 0.5 where several labels
    of the model may be true at once (`LabelScoring.SIGMOID`), and else there is none.
    `text_pair` is a second text to judge beside the first, for models with `Model.takes_pairs`.
    `labels` are those to choose from for a picture, for models with `Model.takes_labels`. Each is put into `label_text`
    in the place of {}, by default into the model's own.
    `prompt_name` is as for embedding; of two texts the prompt stands before the first.
    """

    top_k: int | None
    threshold: float | None
    text_pair: str | None
    labels: Iterable[str]
    label_text: str
    prompt_name: str | None


@dataclass(frozen=True, slots=True)
class LabelScore:
    """One label, its place among the model's labels, and its score: see `Classification.scoring`."""

    label: str
    index: int
    score: float


@dataclass(frozen=True, slots=True, repr=False)
class Classification(Brief):
    """The labels that were chosen, highest score first; `alignment` is None unless `explain` was asked for.

    `scoring` is what the scores are. Of several labels that are true or not each by itself, `labels` are all with a
    score of `threshold` or more; there may be none. By default it is 0.5 for the model's own labels.
    """

    labels: tuple[LabelScore, ...]
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    alignment: Alignment | None = None
    scoring: LabelScoring = LabelScoring.UNSPECIFIED


def classify_request(
    text: Text | None, image: PictureFile | None = None, **options: Unpack[ClassifyOptions]
) -> classification_pb2.ClassifyRequest:
    """Ask for the labels of a text or of a picture."""
    message = classification_pb2.ClassifyRequest()
    if (text is None) == (image is None):
        raise InvalidRequest("give either a text or an image to classify", reason="WRONG_INPUT_KIND")
    if image is not None:
        message.image.CopyFrom(image_of(image))
    elif text is not None:
        fill_text(message, text)
    given = {**options}
    if given.get("text_pair") == "":
        # On the wire it would be none, and the one text would be judged alone.
        raise refusal("text_pair", "must not be empty: leave it out where there is one text", "EMPTY_INPUT")
    if "labels" in given:
        given["labels"] = texts_of("labels", given["labels"])
    fill_options(message, given)
    return message


def classify_one_request(
    text: Text | None, image: PictureFile | None = None, pair: Any = None, **options: Unpack[ClassifyOptions]
) -> classification_pb2.ClassifyRequest:
    """Do as `classify_request` for one text, one picture, or two texts in one."""
    if pair is None:
        return classify_request(text, image, **options)
    first, second = two_of(pair, "pairs", "two texts")
    if options.get("text_pair") is not None:
        raise refusal("text_pair", "is in each of pairs")
    if not isinstance(second, str):
        raise refusal("text_pair", f"must be a str, not {type(second).__name__}")
    judged: ClassifyOptions = {**options, "text_pair": second}
    return classify_request(first, **judged)


CLASSIFY = Verb("Classify", classify_request, reader(Classification))
# What stands in several arguments above stands in one here.
CLASSIFY_ONE = CLASSIFY.asked_by(classify_one_request)
