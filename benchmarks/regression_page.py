"""All measured tables of docs/regression.md by one command, each into its own section of the page.

    OMP_NUM_THREADS=1 python -m benchmarks.regression_page [--sets 500] [--diffprivlib PYTHON]

``--sets`` is the number of made-up tables of every setting; without it each benchmark has its own. All of it takes two
hours of one processor; declared and coverage, the longest, come last and go on where they were stopped.
"""

import argparse

from benchmarks import adassp, coverage, declared, hidden_sums, people_coverage


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", type=int)
    options.add_argument("--diffprivlib", help="the Python of an environment with diffprivlib")
    given = options.parse_args()
    sets = [] if given.sets is None else ["--sets", str(given.sets)]
    hidden_sums.main(sets)
    people_coverage.main(sets)
    adassp.main(sets + ([] if given.diffprivlib is None else ["--diffprivlib", given.diffprivlib]))
    declared.main(sets)
    coverage.main(sets)


if __name__ == "__main__":
    main()
