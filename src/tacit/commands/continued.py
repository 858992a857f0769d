"""A run that goes on: options may be repeated, but not changed, and its ledger is where it was."""

from collections.abc import Mapping

from tacit.errors import InputError


def check_unchanged(known: Mapping[str, object], asked: Mapping[str, object]) -> None:
    """Refuse an option that says something else than the run that it is to go on with."""
    for name, value in known.items():
        if asked[name] not in (None, value):
            raise InputError(f"the run was started with {name} {value}; --{name.replace('_', '-')} cannot change now")
