"""What it means that a spread of the columns is declared, in the words of every statement that rests on it."""


def spread_sentence(spread: float) -> str:
    """What intervals rest on; :mod:`tacit.regression.spread` says how it is defined."""
    return (
        f"intervals hold if any weighted sum of the standardised covariates keeps at least {spread:g} of the variance "
        "it would have if they were uncorrelated: declared (assume_spread), not measured; privacy does not rest on it"
    )
