"""The place of a bundle: of the right form, and with nothing in it that would be missed. And the move into it."""

import os
from pathlib import Path

from weft_export.errors import ExportError
from weft_proto.bundle_rules import MANIFEST_FILE, MODEL_NAME, VERSION


def check_target(bundle_dir: Path, *, force: bool) -> Path:
    """Return the nearest directory above a bundle's place, in which it can be made before it is moved there.

    Raises:
        ExportError: There are three cases:
            1. The path does not end in <name>/<version>.
            2. Something on the way to it is no directory.
            3. It exists and is not to be replaced. Without force nothing is replaced. With force a bundle or an empty
               directory is.
    """
    place = bundle_dir.absolute()
    if not MODEL_NAME.fullmatch(place.parent.name) or not VERSION.fullmatch(place.name):
        message = "a bundle's path ends in <name>/<version>, such as en-es/1: a lower-case name and at most 9 digits"
        raise ExportError(f"{bundle_dir}: {message}")
    home = next(path for path in bundle_dir.absolute().parents if os.path.lexists(path))
    if not home.is_dir():
        raise ExportError(f"cannot write {bundle_dir}: {home} is not a directory")
    if not os.path.lexists(bundle_dir):
        return home
    if not force:
        raise ExportError(f"{bundle_dir} exists already; --force replaces it")
    if bundle_dir.is_symlink() or not bundle_dir.is_dir():
        raise ExportError(f"{bundle_dir} is not a directory; --force replaces a bundle or an empty directory")
    if any(bundle_dir.iterdir()) and not (bundle_dir / MANIFEST_FILE).is_file():
        raise ExportError(f"{bundle_dir} has no {MANIFEST_FILE}; --force replaces a bundle or an empty directory")
    return home


def put(made: Path, bundle_dir: Path, replaced: Path | None) -> None:
    """Move a bundle into its place, and what was there to `replaced`. If that fails, what was there is put back.

    If `replaced` is None, nothing may be there. OSError says that something has come there since it was looked at.
    """
    bundle_dir.parent.mkdir(parents=True, exist_ok=True)
    try:
        if replaced is not None and bundle_dir.exists():
            bundle_dir.rename(replaced)
        made.rename(bundle_dir)
    except BaseException:
        if replaced is not None and replaced.exists() and not bundle_dir.exists():
            replaced.rename(bundle_dir)
        raise
