"""What the scores of a classifier's labels are: as the classification pipelines of transformers make them of logits."""

from weft_export.converters.fields import Fields
from weft_export.families.classifier import IDENTITY, SIGMOID, SOFTMAX

# By problem_type. Where config.json does not say it, the number of labels does.
_SCORINGS = {
    "single_label_classification": SOFTMAX,
    "multi_label_classification": SIGMOID,
    "regression": IDENTITY,
}


def scoring_of(fields: Fields, num_labels: int) -> str:
    """Return how scores are made of the logits of a text or of a picture.

    One label alone has a probability of its own, unless it is the value of a regression.

    Raises:
        CheckpointError: problem_type is none that transformers knows.
    """
    said = fields.raw("problem_type")
    if said is not None and said not in _SCORINGS:
        raise fields.wrong("problem_type", f"is not supported; known are {', '.join(sorted(_SCORINGS))}")
    scoring = _SCORINGS.get(said, SOFTMAX)
    return SIGMOID if num_labels == 1 and scoring == SOFTMAX else scoring
