"""A report is e-mailed: no value of a single row stands in it, nor in anything else that an audit leaves."""

import json
import re
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

import xcal
from xcal.serve.tables import understand

RNG = np.random.default_rng(5)
N, TIMES = 420, np.linspace(2_000.0, 90_000.0, 30)
RATE = np.exp(RNG.normal(0, 0.6, N)) / 40_000
HAPPENS, LEAVES = RNG.exponential(1 / RATE), RNG.uniform(20_000, 90_000, N)
# Minutes, and measurements as people write them: digits enough to know a row by, and not more.
TIME, EVENT = np.minimum(HAPPENS, LEAVES).round() + 1, HAPPENS <= LEAVES
FEATURES = {
    "income": RNG.integers(20_011, 99_989, N),
    "weight": RNG.normal(72, 12, N).round(3),
    "marker": RNG.lognormal(3, 1, N).round(4),
}
PATIENT = np.array([f"QX-{number}" for number in RNG.permutation(np.arange(70_000, 70_000 + N))])
SITE = np.where(np.arange(N) < 3, "Clinic Zephyrine", RNG.choice(["north", "south", "west", "east"], N))
X = pd.DataFrame({**FEATURES, "patient": PATIENT, "number": RNG.permutation(np.arange(610_000, 610_000 + N))})
TRAINING = pd.DataFrame({"income": RNG.integers(20_011, 99_989, N), "weight": RNG.normal(70, 12, N).round(3)})


@pytest.fixture(scope="module")
def result():
    before = np.random.default_rng(6).uniform(2_000, 90_000, N).round()
    return xcal.audit(
        survival=np.exp(-np.outer(RATE, TIMES)),
        times=TIMES,
        y=(TIME, EVENT),
        X=X.assign(hospital=SITE),
        sites="hospital",
        groups={"rich": np.where(X["income"] > 60_000, "yes", "no")},
        training=(TRAINING, (before, np.arange(N) % 2)),
        landmarks=[10_000],
        horizons=[20_000, 40_000],
        n_bootstrap=20,
        time_unit="minutes",
        study={"title": "A study"},
        progress=False,
    )


@pytest.fixture(scope="module")
def told(result, tmp_path_factory):
    """Return all that can leave the machine of who made an audit, as text."""
    folder = tmp_path_factory.mktemp("told")
    pd.DataFrame({**X, "minutes": TIME, "died": EVENT.astype(int)}).to_csv(folder / "p.csv", index=False)
    return {
        "page": result.report(folder / "audit.html").read_text(encoding="utf-8"),
        "json": result.to_json(),
        "screen": repr(result),
        "notebook": result._repr_html_(),
        "numbers": result.to_frame().to_csv(),
        "Table 1": result.table_one.to_frame().to_csv() + repr(result.table_one),
        "methods": result.methods,
        "page to drop a file on": json.dumps(asdict(understand(folder / "p.csv"))),
    }


def numbers_in(text):
    """Every number of a text, commas between thousands taken away, as a person would read it."""
    data = re.sub(r"(?<=\d),(?=\d{3}\b)", "", re.sub(r"<script type=\"module\">.*?</script>", "", text, flags=re.S))
    return {float(number) for number in re.findall(r"(?<![\w.#-])\d+(?:\.\d+)?(?![\w-])", data)}


@pytest.mark.parametrize("name", ["time", *FEATURES])
def test_no_value_of_a_row_is_told(name, told):
    values = set(map(float, TIME if name == "time" else FEATURES[name]))
    values |= set(TRAINING[name]) if name in TRAINING else set()
    # What has no more than three digits is a round number as well.
    own = {
        value for value in values if len(f"{value:g}".replace(".", "").strip("0")) > 3 or value != float(f"{value:.3g}")
    }
    assert len(own) > 0.9 * len(values)
    for place, text in told.items():
        found = own & numbers_in(text)
        assert not found, (place, found)


def test_no_id_and_no_name_of_few_is_told(told):
    for place, text in told.items():
        assert "QX-" not in text, place
        assert not set(X["number"]) & numbers_in(text), place
        assert "Zephyrine" not in text, place


def test_a_row_that_is_told_is_found(result):
    """The test can fail: with nothing hidden, the last time of a row is told."""
    assert float(TIME.max()) in numbers_in(f"<p>{TIME.max():,.0f} minutes</p>")
    assert FEATURES["weight"][0] in numbers_in(json.dumps({"x": FEATURES["weight"][0]}))
    shown = xcal.table_one(X[["weight"]], (TIME, EVENT), min_cell=0)
    assert shown.lines[0].rows.n == N
