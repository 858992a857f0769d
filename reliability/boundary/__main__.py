"""Run the attacks and print how each ended: ``python -m reliability.boundary [a word of their names ...]``."""

import sys
import time

from reliability.boundary.catalogue import ATTACKS


def main() -> None:
    words = sys.argv[1:]
    chosen = [
        one for one in ATTACKS.values() if not words or any(word in f"{one.name} {one.finding}" for word in words)
    ]
    lost = 0
    for one in chosen:
        start = time.perf_counter()
        outcome = one.run()
        lost += not outcome.holds
        print(
            f"{'ok  ' if outcome.holds else 'LOST'} {one.finding:4} {one.name}: {outcome} "
            f"({time.perf_counter() - start:.1f} s)",
            flush=True,
        )
    print(f"{len(chosen)} attacks, {lost} that do not hold")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
