"""Tacit inside other people's loops: one file for each library, which is an optional extra."""
