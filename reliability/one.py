"""One proof by its name, its figures as one line of JSON: ``python -m reliability.one f03_chunking 0.01``."""

import importlib
import json
import sys
from dataclasses import asdict


def main() -> None:
    name, effort = sys.argv[1], float(sys.argv[2])
    figures = list(importlib.import_module(f"reliability.{name}").prove(effort))
    print(json.dumps([asdict(one) for one in figures]))


if __name__ == "__main__":
    main()
