"""What a search costs whose trials are the runs of any ledger: the number of them drawn, the best one released.

``trials`` has the theorem. A search that charges one event for all of it (``tacit tune``) is read by every budget.
"""

from tacit.accountants.guarantee import Guarantee, check_ledger, refuse_adaptive, statement
from tacit.accountants.renyi.conversion import rdp_bound
from tacit.accountants.renyi.divergences import renyi_curve
from tacit.accountants.renyi.poisson_steps import ORDERS
from tacit.accountants.renyi.trials import gamma_for_trials, selection_rdp
from tacit.ledger import Ledger


def selection_guarantee(trial: Ledger, *, delta: float, trials: float, eta: float = 1.0) -> Guarantee:
    """What a search costs that draws its number of trials (``trials`` expected) and releases only the best.

    Args:
        trial: the ledger of the most expensive single trial, scoring included.
    """
    check_ledger(trial, delta)
    refuse_adaptive("private selection", trial)
    gamma = gamma_for_trials(trials, eta)
    curve = selection_rdp(renyi_curve(trial), ORDERS, gamma, eta)
    epsilon = rdp_bound(curve, ORDERS, delta)
    also = (
        f"search: the number of trials was drawn from a truncated negative binomial (eta {eta:g}, mean {trials:g}), "
        "settings were drawn independently of the data, and only the best trial is released",
    )
    return statement(trial, accountant="rdp_selection", epsilon=epsilon, delta=delta, is_bound=True, also=also)
