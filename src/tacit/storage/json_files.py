"""JSON files: written whole, and read as what others may have changed: a field has its type, or is refused by name."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.storage.files import read_parts, replace_file
from tacit.storage.names import clean

LARGEST = 20_000_000  # bytes of a JSON file that is still read


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object and where it came from.

    Example:
        >>> Fields("run.json", {"target": "outcome"}).text("target", "")
        'outcome'
    """

    where: str
    content: Any

    def __post_init__(self) -> None:
        if not isinstance(self.content, dict):
            raise InputError(f"{self.where} must be a JSON object, found {type(self.content).__name__}")

    def check_format(self, known: int) -> None:
        if self.content.get("format") != known:
            raise InputError(f"{self.where}: this version reads format {known}, found {self.content.get('format')!r}")

    def value(self, name: str) -> Any:
        return self.content.get(name)

    def text(self, name: str, otherwise: str) -> str:
        found = self.value(name)
        if found is None:
            return otherwise
        if not isinstance(found, str):
            raise self._wrong(name, "text", found)
        return clean(found)

    def truth(self, name: str) -> bool:
        found = self.value(name)
        if found is not None and not isinstance(found, bool):
            raise self._wrong(name, "true or false", found)
        return bool(found)

    def number(self, name: str) -> float | None:
        found = self.value(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not _is_finite(found):
            raise self._wrong(name, "a finite number", found)
        return float(found)

    def needed(self, name: str) -> float:
        found = self.number(name)
        if found is None:
            raise InputError(f"{self.where}: {name} is missing")
        return found

    def count(self, name: str) -> int | None:
        found = self.value(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 10**15:
            raise self._wrong(name, "a whole number", found)
        return found

    def names(self, name: str) -> tuple[str, ...]:
        """A list of words or numbers, as words."""
        found = self._list(name)
        if not all(isinstance(item, str | int | float) for item in found):
            raise self._wrong(name, "a list of names", found)
        return tuple(clean(str(item)) for item in found)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers; null and NaN, as an empty bin has, become NaN."""
        found = [math.nan if item is None else item for item in self._list(name)]
        if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in found):
            raise self._wrong(name, "a list of numbers", found)
        values = tuple(float(item) if abs(item) < 1e300 or item != item else math.inf for item in found)
        if any(math.isinf(item) for item in values):
            raise self._wrong(name, "a list of finite numbers", found)
        return values

    def part(self, name: str) -> "Fields | None":
        return None if self.value(name) is None else Fields(f"{self.where}: {name}", self.value(name))

    def parts(self, name: str) -> "tuple[Fields, ...]":
        return tuple(Fields(f"{self.where}: {name}", item) for item in self._list(name))

    def _list(self, name: str) -> list[Any]:
        found = self.value(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self._wrong(name, "a list", found)
        return found

    def _wrong(self, name: str, wanted: str, found: object) -> InputError:
        return InputError(f"{self.where}: {name} must be {wanted}, found {clean(repr(found))}")


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def read_json(path: Path, known: int) -> Fields | None:
    """The object in a file of the format ``known``; None where there is no file."""
    parts = read_parts(path)
    if parts is None:
        return None
    data = bytearray()
    for part in parts:
        data += part
        if len(data) > LARGEST:
            raise InputError(f"{path} is larger than {LARGEST:,} bytes; it is not a file that tacit wrote")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    fields = Fields(path.name, found)
    fields.check_format(known)
    return fields


def write_json(path: Path, facts: dict[str, Any]) -> None:
    replace_file(path, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())


def finite(value: Any) -> Any:
    """The same value with null in place of what is infinite or no number: every parser of JSON reads that.

    Example:
        >>> finite({"epsilon": float("inf"), "bracket": (0.5, 1.0)})
        {'epsilon': None, 'bracket': [0.5, 1.0]}
    """
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {name: finite(item) for name, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case _:
            return value
