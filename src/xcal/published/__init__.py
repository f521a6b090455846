"""The published code where it departs from the paper's equations: likelihood, survival CRPS, families, ranking.

This room exists to reproduce the paper's tables, and for nothing else; `docs/fidelity.md` lists the differences. Of the
other rooms only the experiments depend on it. Three public options lead here and import it when they are used:
``nll(..., as_published=True)``, ``survival_crps(..., as_published=True)``, and the families "lognormal-published" and
"weibull-published".
"""

from xcal.published.crps import published_survival_crps
from xcal.published.families import PublishedLogNormalFamily, PublishedWeibullFamily
from xcal.published.likelihood import FLOOR, counted_as_event, published_nll
from xcal.published.ranking import ranking_time
from xcal.published.shifted import Shifted

__all__ = [
    "FLOOR",
    "PublishedLogNormalFamily",
    "PublishedWeibullFamily",
    "Shifted",
    "counted_as_event",
    "published_nll",
    "published_survival_crps",
    "ranking_time",
]
