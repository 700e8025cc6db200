"""The handwritten digits that scikit-learn ships, and which of them are never trained on."""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def split() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Return pictures [n, 8, 8] and labels to train on, then those of the test split: a fifth, stratified by label."""
    digits = load_digits()
    pictures = np.round(digits.images * (255 / 16)).astype(np.uint8)
    trained, tested, labels, test_labels = train_test_split(
        pictures, digits.target, test_size=0.2, stratify=digits.target, random_state=0
    )
    return trained, labels, tested, test_labels
