"""
From a table to a chosen model
==============================

A data frame goes in, a whole path of models comes out, and the default rule picks the one that is calibrated without a
visible price.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from xcal import Surv, SurvivalPath

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--out", type=Path, default=Path("runs/frontier"), help="folder of the page")
options = parser.parse_args()

# %%
# The table: 4,000 patients. Their times have heavier tails than any Weibull distribution, so that a Weibull model
# trained by likelihood alone gives probabilities that are off.

rng = np.random.default_rng(0)
patients = pd.DataFrame({"age": rng.normal(60, 10, 4000), "dose": rng.uniform(0, 1, 4000)})
dies = np.exp((60 - patients["age"]) / 20 + patients["dose"] + 0.5 * rng.standard_t(3, 4000))
leaves = rng.exponential(20, 4000)
y = Surv(time=np.minimum(dies, leaves), event=dies <= leaves)
train, test = slice(0, 3000), slice(3000, None)

# %%
# With ``path="always"`` one fit trains every weight and every seed. ``dcal`` is D-calibration on validation rows,
# ``dcal_floor`` is what a perfect model scores there on average.

path = SurvivalPath((0, 10, 30, 100, 300, 1000), seeds=2, path="always", distribution="weibull", epochs=options.epochs)
path.fit(patients[train], y[train])
print(path.summary()[["nll", "dcal", "dcal_floor", "concordance"]].round(4))

# %%
# Further to the left is better calibrated, further up ranks patients better.

path.plot()

# %%
# ``select()`` chooses, and rows that no model has seen tell whether it was right. A calibrated model has bars of equal
# height.

plain, chosen = path.model(0), path.select()
figure, axes = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
for axis, model in zip(axes, (plain, chosen), strict=True):
    seen = model.d_calibration(patients[test], y[test], method="km")
    axis.bar(seen.edges[:-1], seen.histogram, np.diff(seen.edges), align="edge", color="#2f6db5", edgecolor="white")
    axis.axhline(1 / seen.histogram.size, color="black", ls="--", lw=1)
    name = f"lambda {model.xcal_lambda:g}" + (", recalibrated" if model.fitted_.recalibration is not None else "")
    axis.set(title=f"{name}: {seen.value:.4f}", xlabel="F at the event")
    axis.spines[["top", "right"]].set_visible(False)
    concordance = model.score(patients[test], y[test])
    print(f"{name}: D-calibration {seen.value:.4f}, concordance {concordance:.3f}")
axes[0].set_ylabel("share of the events")

# %%
# The same on a page, to choose on: a click on a point picks a model, and everything below follows. One file, without a
# network.

page = path.report(options.out / "frontier.html", patients[test], y[test], time_unit="years")
print(f"The page is {page.name}; on top: {path.selection_.reason}")
