"""Names from files that others wrote, as text: a name cannot pretend to be anything but a name."""

import unicodedata

_LONGEST = 200


def clean(text: str) -> str:
    """A name from a file on one line: without control, invisible and direction-changing characters, and not endless.

    Example:
        >>> clean("age" + chr(0x202E) + "  in" + chr(10) + "years")
        'age in years'
    """
    line = one_line(text[: 4 * _LONGEST])
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def one_line(text: str) -> str:
    """Text without the characters that cannot be seen; what a format writes has passed here."""
    return " ".join("".join(" " if unicodedata.category(letter) in _UNSEEN else letter for letter in text).split())


_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
