"""Is the noise what the ledger claims? Its scale and shape, its far tails, and the keys that it is drawn by."""
