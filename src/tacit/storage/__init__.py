"""Where bytes lie: the disk behind an interface, files written whole, files that only grow, locks, digests."""
