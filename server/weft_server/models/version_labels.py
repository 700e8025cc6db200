"""The labels of a model's versions: `stable`, and `canary` with its share of the requests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from weft_server.errors import InvalidRequest

STABLE = "stable"
CANARY = "canary"


@dataclass(frozen=True, slots=True)
class VersionLabels:
    """Which version of one model bears which label. A version bears one label at most."""

    stable: int | None = None
    canary: int | None = None
    # Of the requests that name neither version nor label, [0, 1].
    share: float = 0.0

    def version(self, label: str) -> int | None:
        """Return the version that bears a label, if any does. Raises InvalidRequest for a label that there is not."""
        check_label(label, "model.version_label")
        return self.stable if label == STABLE else self.canary

    def of(self, version: int) -> list[str]:
        """Return the labels that a version bears."""
        return [label for label, number in ((STABLE, self.stable), (CANARY, self.canary)) if number == version]

    def put(self, label: str, version: int | None, share: float | None = None) -> VersionLabels:
        """Return the labels with one put on a version, or with None taken away.

        A canary that becomes stable is no canary any more.

        Raises:
            InvalidRequest: label or share are none, or the stable version shall be a canary.
        """
        check_label(label, "version_label")
        check_share(label, share)
        if label == CANARY:
            if version is not None and version == self.stable:
                raise InvalidRequest("version", f"{version} is stable, and a canary is another version")
            return replace(self, canary=version, share=0.0 if version is None else share or 0.0)
        promoted = self.without(version) if version is not None and version == self.canary else self
        return replace(promoted, stable=version)

    def without(self, version: int) -> VersionLabels:
        """Return the labels without those of a version that leaves."""
        labels = self
        if labels.stable == version:
            labels = replace(labels, stable=None)
        if labels.canary == version:
            labels = replace(labels, canary=None, share=0.0)
        return labels

    def draws_canary(self, name: str, request_id: str) -> bool:
        """Whether a request is one of the canary's share.

        It follows from model and request id alone: who asks again gets the same version, on any server. With a larger
        share, all that were the canary's still are.
        """
        if self.canary is None or not self.share:
            return False
        digest = hashlib.blake2b(f"{name}/{request_id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) < self.share * 2**64


def check_label(label: str, field: str) -> None:
    """Raise InvalidRequest for a label that there is not."""
    if label not in {STABLE, CANARY}:
        raise InvalidRequest(field, f"must be {STABLE} or {CANARY}")


def check_share(label: str, share: float | None) -> None:
    """Raise InvalidRequest for a share out of its range, or of what is no canary."""
    if share is None:
        return
    if label != CANARY:
        raise InvalidRequest("share", f"is for the label {CANARY} alone")
    if not 0 <= share <= 1:
        raise InvalidRequest("share", f"must be 0..1, not {share:.6g}")
