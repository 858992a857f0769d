"""What must never happen (docs/explanation/failure-modes.md), tried out row by row: ``python3 dev.py reliability``."""
