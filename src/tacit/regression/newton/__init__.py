"""Noisy Newton: the few large releases of a regression, how its budget is shared out, what they say of curvature."""
