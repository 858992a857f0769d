"""Renyi divergences: moments of every event, their sum over a ledger, and what they say as (epsilon, delta)."""
