"""What others wrote must not steer a terminal."""

from rich.text import Text

# Line ends and tabs are text. C0 has signs of its own; C1, which a terminal may obey as well, shares one.
_SIGNS = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
    | {127: 0x2421}
    | dict.fromkeys(range(128, 160), 0xFFFD)
)


def steerless(text: str) -> str:
    """Return a text with a sign for each control character: what a bundle says must not steer a terminal."""
    return text.translate(_SIGNS)


def words(text: str, style: str = "") -> Text:
    """Return text that others wrote as a table can show it."""
    return Text(steerless(text), style)
