"""A checkpoint from the Hugging Face hub: downloaded once, and only what is read of it."""

from pathlib import Path

from weft_export.checkpoints.formats import HUB_NAME, TOKEN_VECTORS, TOKEN_WEIGHTS, fetching, is_one_file
from weft_export.errors import CheckpointError

# Weights, sizes, tokenizers and templates. Nothing that is code, and of pickles, which may run code, these two alone:
# a BGE-M3 without them would be another model, and its authors have them in no other form.
WANTED = ("*.json", "*.safetensors", "*.model", "*.spm", "*.txt", "*.jinja", TOKEN_VECTORS, TOKEN_WEIGHTS)
# What lies in folders is for other programs, but for those of sentence-transformers' modules, such as 1_Pooling.
_UNWANTED = ("[!0-9]*/*", "*/*/*")


def is_on_hub(checkpoint: str) -> bool:
    """Whether this is no file here, and may be ORG/NAME."""
    path = Path(checkpoint)
    return not (path.exists() or is_one_file(path)) and HUB_NAME.fullmatch(checkpoint) is not None


def download(name: str) -> Path:
    """Return the folder of a hub's model, downloaded if it is not there yet.

    Raises:
        CheckpointError: there is no network, the hub does not give it, or it has no weights in safetensors.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - late: who has a folder needs no hub
    from huggingface_hub.errors import (  # noqa: PLC0415 - same
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        path = Path(snapshot_download(name, allow_patterns=[*WANTED], ignore_patterns=[*_UNWANTED]))
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{name} is no folder here, and the hub has no such model that you may read: for a private one, log in by"
            " `hf auth login`"
        ) from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"{name} is no folder here, and it cannot be downloaded: the hub cannot be reached. Give the path of a"
            " folder with the checkpoint"
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise CheckpointError(f"{name} cannot be downloaded: {str(error).splitlines()[0]:.300}") from error
    if not any(path.glob("*.safetensors")):
        raise CheckpointError(
            f"{name} has no weights in safetensors, and no others are downloaded. If it has pytorch_model.bin,"
            f" {fetching(name)}. If it has GGUF files, download one and give its path"
        )
    return path
