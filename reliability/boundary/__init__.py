"""Attacks on the promise that one record more moves a release by at most what the ledger charges.

``python -m reliability.boundary`` runs them all, ``python -m reliability.boundary guard`` those with the word in their
names. Each is written as a user might write it, against the public interface only.
"""
