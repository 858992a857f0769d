"""Settings searched for on private records: what it would cost, the trials, and the function that does it."""
