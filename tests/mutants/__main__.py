"""Try every mutant and print the table: what is wrong, what caught it, how long that took."""

import sys

from rich.console import Console
from rich.table import Table

from tests.mutants import MUTANTS
from tests.mutants.catchers import CATCHERS
from tests.mutants.mutant import attempt


def main() -> int:
    console = Console(width=150)
    mutants = [one for one in MUTANTS if not (one.slow and "--fast" in sys.argv)]
    for name in sorted({one.catcher for one in mutants}):
        if broke := list(CATCHERS[name]()):
            console.print(f"{name} does not even hold for the right code: {broke}", style="red")
            return 1
    table = Table("row", "mutant", "must be caught by", "what it said", "seconds")
    survived = 0
    for one in mutants:
        trial = attempt(one, CATCHERS[one.catcher])
        survived += not trial.caught
        said = trial.by if trial.caught else "SURVIVED"
        table.add_row(
            one.row, one.name, one.catcher, said[:70], f"{trial.seconds:.1f}", style=None if trial.caught else "red"
        )
    console.print(table)
    console.print(f"{len(mutants)} mutants, {len(mutants) - survived} caught, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
