"""
A validation report
===================

One line validates a model on rows that it has not seen, another writes a report that answers one question after
another. Here for two models of the same patients: one that knows the truth, and one that exaggerates every difference
between patients.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import xcal

parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, default=1500, help="patients")
parser.add_argument("--resamples", type=int, default=1000, help="resamples behind the intervals")
parser.add_argument("--out", type=Path, default=Path("runs/report"), help="folder of the reports")
options = parser.parse_args()

# %%
# Patients with an age and a stage, followed for up to nine years. The second model has the right covariates, with
# weights twice as large as they should be.

rng = np.random.default_rng(2)
age = rng.normal(62, 9, options.n)
stage = rng.integers(1, 4, options.n)
score = 0.04 * (age - 62) + 0.55 * (stage - 2)
hazard = 0.16 * np.exp(score)
happens = rng.exponential(1 / hazard)
leaves = np.minimum(rng.exponential(16, options.n), rng.uniform(4, 9, options.n))
time, event = np.minimum(happens, leaves), happens <= leaves

times = np.linspace(0.1, 9, 90)
good = pd.DataFrame(np.exp(-hazard[:, None] * times), columns=times)
overconfident = pd.DataFrame(np.exp(-0.2 * np.exp(2 * score)[:, None] * times), columns=times)

# %%
# Survival curves are all that is needed; a fitted model and its features would do as well. Groups, horizons and the
# unit of time are for the report.

groups = {"stage": stage.astype(str), "age": np.where(age >= 65, "65 or older", "under 65")}
comparison = xcal.compare_models(
    {"Good model": good, "Overconfident model": overconfident},
    y=(time, event),
    horizons=[1, 3, 5],
    groups=groups,
    time_unit="years",
    n_bootstrap=options.resamples,
    progress=False,
)
for name, result in comparison.results.items():
    print(f"{name}: {result.verdict.headline} (O/E {result.value('oe', horizon=3.0).value:.2f} at 3 years)")

# %%
# The reports: one file each, without a network; and both models on one page.

options.out.mkdir(parents=True, exist_ok=True)
results = list(comparison.results.values())
for result, name in zip(results, ("good", "bad"), strict=True):
    result.report(options.out / f"{name}.html")
comparison.report(options.out / "both.html")

# %%
# The same pictures for a paper, with matplotlib: axes in, axes out. On the left the good model, on the right the
# overconfident one. Are the risks at three years right? The points should lie on the dashed line.

for kind in ("calibration", "pit", "decision"):
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for ax, result in zip(axes, results, strict=True):
        result.plot(kind, ax, horizon=3.0)
        ax.set_title(result.model)
    figure.savefig(options.out / f"{kind}.png", dpi=110)

# %%
# The second row asks about all times at once: of a perfect model all bars are equally high. The third asks whether it
# helps to act on the model: its line should be above both others. :doc:`/reading-a-report` says how to read them.
