"""How good a run is: on public data, by a private score on records held out, and before a record is read."""
