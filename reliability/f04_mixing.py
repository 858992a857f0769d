"""F4: layers that mix records are refused, others accepted. The layers are those of tests/gradients."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from reliability.figures import Figure
from tacit.errors import RecordMixingError

_TESTS = Path(__file__).parent.parent / "tests" / "gradients" / "test_record_mixing.py"


def prove(effort: float) -> Iterator[Figure]:
    spec = importlib.util.spec_from_file_location("record_mixing_layers", _TESTS)
    assert spec is not None
    assert spec.loader is not None
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    refused = sum(_refused(layers.check, model) for model in layers.MIXING.values())
    accepted = sum(not _refused(layers.check, model) for model in layers.GOOD.values())
    yield Figure(
        "F4", "mixing layers", len(layers.MIXING), len(layers.MIXING) - refused, f"{refused} refused", "10 of 10"
    )
    yield Figure("F4", "good layers", len(layers.GOOD), len(layers.GOOD) - accepted, f"{accepted} accepted", "10 of 10")


def _refused(check, model) -> bool:  # type: ignore[no-untyped-def]
    try:
        check(model)
    except RecordMixingError:
        return True
    return False
