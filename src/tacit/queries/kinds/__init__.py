"""What can be asked, one file for each family of queries: which sums it releases, and what follows from them."""
