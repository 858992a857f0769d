"""Changes to JSON, text and safetensors as somebody with an editor could make them: other values, names and shapes."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 1e-300, 1e308, -1e308, float("nan"), float("inf"), 10**30, 2**63, 1e-9, "", "x",
    "nan", "1", "../x", "\x00", "\ud7ff", "[/b]", "a\nb", [], {}, [[]], [1], {"a": 1}, [None], ["x"], "record", "user",
]  # fmt: skip
_TEXTS = [
    "",
    '"',
    "[",
    "]",
    "=",
    "0",
    "-1",
    "1e999",
    "nan",
    "true",
    "{}",
    "\n",
    "x" * 300,
    "'",
    "[[columns]]\n",
    "\x00",
]


def changed_json(value: Any, chance: random.Random) -> tuple[Any, str]:
    """A value in which one place is another, is gone, or is there twice; and what was done."""
    result = copy.deepcopy(value)
    places = list(_places(result))
    if not places:
        return chance.choice(_VALUES), "replaced"
    holder, key = chance.choice(places)
    match chance.randrange(6):
        case 0:
            del holder[key]
            return result, f"{key!r} left out"
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
            return result, f"{key!r} twice"
        case 1:
            holder[f"{key}2"] = holder.pop(key)
            return result, f"{key!r} renamed"
        case 2 | 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            number = holder[key]
            holder[key] = chance.choice((number * 2, number / 2, number + 1, number - 1, -number))
        case _:
            holder[key] = copy.deepcopy(chance.choice(_VALUES))
    return result, f"{key!r} = {holder[key]!r}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    match value:
        case dict():
            keys: list[Any] = list(value)
        case list():
            keys = list(range(len(value)))
        case _:
            return
    for key in keys:
        yield value, key
        yield from _places(value[key])


def changed_text(text: str, chance: random.Random) -> str:
    """Words or lines replaced, left out or doubled."""
    parts = text.splitlines(keepends=True) if chance.random() < 0.4 else text.split(" ")
    joint = "" if parts[0].endswith("\n") else " "
    place = chance.randrange(len(parts))
    parts[place : place + 1] = chance.choice(([], [parts[place]] * 2, [chance.choice(_TEXTS)]))
    return joint.join(parts)


def read_header(data: bytes) -> tuple[Any, bytes]:
    """The JSON header of a safetensors file, and the numbers after it."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(header: Any, rest: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + rest
