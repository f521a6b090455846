"""
Recalibrate a trained model
===========================

A model that must not be trained again can still be recalibrated: one increasing map of F, fitted on validation rows,
makes its probabilities right over all rows. Within subgroups it cannot.
"""

import matplotlib.pyplot as plt
import numpy as np

from xcal import d_calibration
from xcal.recalibration import KaplanMeierRecalibration

# %%
# Two groups of patients, half of the rows censored. The model has hazards 1.6 times too high for one group and 1.2
# times too high for the other.

rng = np.random.default_rng(0)


def rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F at each row's observed time, whether the event happened, and the group."""
    old = rng.random(n) < 0.5
    happens, leaves = rng.exponential(size=(2, n))
    time, event = np.minimum(happens, leaves), happens <= leaves
    return 1 - np.exp(-np.where(old, 1.6, 1.2) * time), event, np.where(old, "old", "young")


# %%
# Fit the map on validation rows, apply it to new ones.

cdf, event, _ = rows(5000)
recalibration = KaplanMeierRecalibration.fit(cdf, event)
print(recalibration)

cdf, event, group = rows(5000)
before = d_calibration(cdf, event, groups=group, method="km")
after = d_calibration(recalibration.cdf(cdf), event, groups=group, method="km")
print("before\n", before, "\nafter\n", after, sep="")

# %%
# Over all rows D-calibration falls to near the floor. Within the groups it does not: one map for everybody cannot
# remove an error that differs between them, and for the young, whose error was the smaller one, it makes it larger.
# :doc:`/recalibration` says more.

figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for axis, name in zip(axes, ("all rows", "old", "young"), strict=True):
    for result, colour, label in ((before, "#bbbbbb", "before"), (after, "#2f6db5", "after")):
        one = result.whole if name == "all rows" else result.groups[name]
        axis.stairs(one.histogram, one.edges, color=colour, lw=2, label=f"{label}: {one.value:.4f}")
    axis.axhline(0.1, color="black", ls="--", lw=1)
    axis.set(title=name, xlabel="F at the event", ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, title="D-calibration", loc="lower center")
axes[0].set_ylabel("share of the events")
