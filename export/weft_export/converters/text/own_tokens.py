"""Classes whose own code finds special tokens in a text: they are supported with their own tokens alone."""

from collections.abc import Mapping

from weft_export.converters.text.settings import NAMES, TokenizerSettings

_LISTS = "additional_special_tokens, extra_special_tokens or model_specific_special_tokens"


def check_tokens(
    settings: TokenizerSettings, named: Mapping[str, str], further: Mapping[int, str], ids: Mapping[int, str]
) -> None:
    """Raise CheckpointError where the files say other special tokens.

    Args:
        settings: the files.
        named: the class's own special tokens, by their names.
        further: its further ones, by their ids.
        ids: the ids of the first.
    """
    for name, token in settings.named.items():
        if (token is not None or name in named) and str(token) != named.get(name):
            raise settings.wrong(f"{name} is {str(token)!r:.40}: its class is supported with its own tokens alone")
    for name, value in settings.options.items():
        if name.endswith("_token") and name not in NAMES and value not in (None, False):
            raise settings.wrong(f"{name} is there: its class is supported with its own tokens alone")
    given = settings.additional if settings.extra is None else settings.extra
    if given is not None and [*map(str, given)] != [*further.values()]:
        wanted = f"are {len(further)}, the last of which is {[*further.values()][-1]}" if further else "are none"
        raise settings.wrong(f"the tokens of its class {wanted}, and {_LISTS}, or extra_ids, says others")
    added = {id_: token.content for id_, token in settings.added.items()}
    odd = any(
        token.single_word or (id_ in further and (token.lstrip or token.rstrip))
        for id_, token in settings.added.items()
    )
    if odd or added not in ({}, dict(further), {**ids, **further}):
        raise settings.wrong(f"added_tokens_decoder or added_tokens.json has other tokens than its class and {_LISTS}")
