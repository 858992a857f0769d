"""A regression from declared facts to a finished folder, in one process or in several that were stopped.

    run.json                 what is asked
    checkpoint.safetensors   no release yet
    ledger.jsonl             all releases are charged in one block
    checkpoint.safetensors   each part of a release: that it is begun, then what it is (newton/kept.py)
    posterior, run.json      what the releases say; the manifest comes last

Whatever comes after the charge follows from the releases, which are read back: a run can be gone on with from anywhere.
"""

from dataclasses import replace

from tacit.errors import InputError, TacitError
from tacit.ledger.registry import read_registry
from tacit.regression.newton.kept import Releases, read_releases
from tacit.regression.regression import Charging, Regression, release
from tacit.regression.results.saved import RegressionFacts, save_regression
from tacit.runs import RunFolder
from tacit.storage.files import is_there
from tacit.storage.json_files import write_json
from tacit.tables import Table


def run_regression(facts: RegressionFacts, table: Table, folder: RunFolder, *, resume: bool = False) -> Regression:
    """Run what ``facts`` ask in a folder that was free, or go on with the run that is there.

    All that can be checked is checked before the first file and the first charge.
    """
    from tacit.randomness import Randomness  # torch comes with it

    problem, source = facts.problem, Randomness()
    problem.check_table(table)
    rows = problem.rows(table)
    if facts.registry is not None and is_there(folder.path / facts.registry):
        read_registry(folder.path / facts.registry)  # another file, or a damaged one, is refused
    charging = Charging(problem, folder.place_of_ledger(facts), facts.shared, source.kind)
    if not resume:
        charging.check()
    with folder.claimed(new=not resume):
        kept = _kept(facts, folder) if resume else _begun(facts, folder)
        try:
            charged = charging.make(kept)
        except TacitError:
            if not resume and not is_there(folder.ledger):  # refused, and nothing was charged
                folder.checkpoint.unlink(missing_ok=True)
            raise
        found = replace(release(problem, rows, source, facts.prior, kept), ledger=charged)
        save_regression(folder, facts, found)
    return found


def _begun(facts: RegressionFacts, folder: RunFolder) -> Releases:
    """Before the charge, so that what was charged always has a place where its releases are kept."""
    write_json(folder.facts, facts.to_json())
    kept = Releases(folder.checkpoint)
    kept.write()
    return kept


def _kept(facts: RegressionFacts, folder: RunFolder) -> Releases:
    found, shared = read_releases(folder.checkpoint), folder.shared_ledger(facts)
    if found is None and is_there(folder.ledger):
        raise InputError(
            f"{folder.checkpoint} is gone, and with it what was released; drawn again it would have to be paid again: "
            "put it back, or name another folder"
        )
    if found is None:
        raise InputError(f"{folder.path} has no ledger: nothing was charged, start without --resume")
    if found.found and shared is not None and not is_there(shared):
        raise InputError(f"the run shares the ledger {shared}, which is not there; put it back to go on")
    return found
