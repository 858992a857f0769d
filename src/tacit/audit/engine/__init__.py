"""The engine as users drive it: models of every kind, and attempts to get around its rules."""
