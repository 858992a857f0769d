"""What a regression found: the coefficients, how they are printed, and the folder that holds them."""
