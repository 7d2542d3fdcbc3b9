"""Anytime-valid statistics: every interval here holds at all sample sizes at once, so looking often costs nothing.

Pure numpy and scipy, checked against published numbers; the normal mixture and the sign test are here for those numbers
only, as references of the same construction. ``mixture`` holds the supermartingales, the other modules the intervals
that are made from them.
"""

from __future__ import annotations

from compare.stats.band import ecdf_band
from compare.stats.bernoulli import RateInterval, rate_evidence, rate_interval, trials_to_settle
from compare.stats.bounded import RunningMean, mean_interval
from compare.stats.cusum import best_bet, log_e_cusum
from compare.stats.evidence import e_benjamini_hochberg, sign_e_value
from compare.stats.histogram import Histogram
from compare.stats.percentile import Percentile, percentile
from compare.stats.quantile import first_finite_trials, quantile_evidence, quantile_interval, quantile_ranks

__all__ = [
    "Histogram",
    "Percentile",
    "RateInterval",
    "RunningMean",
    "best_bet",
    "e_benjamini_hochberg",
    "ecdf_band",
    "first_finite_trials",
    "log_e_cusum",
    "mean_interval",
    "percentile",
    "quantile_evidence",
    "quantile_interval",
    "quantile_ranks",
    "rate_evidence",
    "rate_interval",
    "sign_e_value",
    "trials_to_settle",
]
