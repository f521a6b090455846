"""What a table is taken for, and the command that is made of it."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from xcal._files import read
from xcal.cli.app import app
from xcal.serve.tables import Asked, command, understand

RNG = np.random.default_rng(0)
N = 80


def rows():
    rate = RNG.uniform(0.02, 0.2, N)
    happens, leaves = RNG.exponential(1 / rate), RNG.uniform(2, 30, N)
    time, event = np.minimum(happens, leaves).round(3), happens <= leaves
    return rate, pd.DataFrame({"months": time, "died": event.astype(int), "sex": RNG.choice(["f", "m"], N)})


def understood(frame, tmp_path, name="table.csv"):
    frame.to_csv(tmp_path / name, index=False)
    return understand(tmp_path / name)


def test_curves_are_found_by_their_names_and_that_they_fall(tmp_path):
    rate, frame = rows()
    for t in (6, 12, 24):
        frame[f"s_{t}"] = np.exp(-rate * t)
        frame[f"x_{t}"] = rate * t / 10  # shares that rise are no survival
    found = understood(frame, tmp_path)
    assert found.curves == ("s_*",)
    asked = found.asked
    assert (asked.kind, asked.time, asked.event, asked.curves) == ("predictions", "months", "died", "s_*")
    assert (asked.event_value, asked.time_unit, asked.by) == ("", "months", ("sex",))


def test_a_risk_has_the_time_of_its_name(tmp_path):
    rate, frame = rows()
    asked = understood(frame.assign(risk_12=-np.expm1(-rate * 12)), tmp_path).asked
    assert (asked.kind, asked.risk, asked.horizon) == ("predictions", "risk_12", "12")
    asked = understood(frame.assign(cdf=-np.expm1(-rate * frame["months"])), tmp_path).asked
    assert (asked.kind, asked.cdf, asked.risk) == ("predictions", "cdf", "")


def test_data_alone_are_for_training_and_events_may_be_words(tmp_path):
    _, frame = rows()
    frame = frame.rename(columns={"months": "t"}).assign(
        status=np.where(frame["died"] == 1, "dead", "alive"), centre="a"
    )
    asked = understood(frame.drop(columns="died"), tmp_path).asked
    assert (asked.kind, asked.time, asked.event, asked.event_value) == ("data", "t", "status", "dead")
    assert (asked.site, asked.time_unit) == ("centre", "")


def test_events_may_have_causes(tmp_path):
    _, frame = rows()
    frame["cause of death"] = frame.pop("died") * RNG.integers(1, 3, N)
    asked = understood(frame, tmp_path).asked
    assert (asked.kind, asked.cause) == ("data", "cause of death")
    words = command(asked, "a.csv")
    assert "--cause=cause of death" in words
    assert not [word for word in words if word.startswith("--event")]


def test_labels_of_few_rows_are_not_shown(tmp_path):
    _, frame = rows()
    frame["ward"] = ["J. Quux"] * 2 + ["north"] * 40 + ["south"] * 38
    (ward,) = [one for one in understood(frame, tmp_path).columns if one.name == "ward"]
    assert ward.labels == ("north", "south")


@pytest.mark.parametrize("kind", ["curves", "risk", "cdf"])
def test_the_command_does_what_it_says(kind, tmp_path, monkeypatch):
    rate, frame = rows()
    frame = frame.rename(columns={"months": "-time of, it", "died": "event 'x'"})  # names that look like options
    time = frame["-time of, it"]
    added = {"curves": {"s_6": np.exp(-rate * 6), "s_12": np.exp(-rate * 12)}, "risk": {"r12": -np.expm1(-rate * 12)}}
    frame = frame.assign(**added.get(kind, {"F": -np.expm1(-rate * time)}))
    given = {"curves": {"curves": "s_*"}, "risk": {"risk": "r12", "horizon": "12"}, "cdf": {"cdf": "F"}}[kind]
    asked = read(Asked, {"time": "-time of, it", "event": "event 'x'", **given, "by": ["sex"]}, "options")
    frame.to_csv(tmp_path / "my.csv", index=False)
    monkeypatch.chdir(tmp_path)
    words = command(asked, "my.csv")
    assert words[:3] == ["xcal", "audit", "my.csv"]
    done = CliRunner().invoke(app, [*words[1:], "--resamples=0"])
    assert done.exit_code == 0, done.output
    assert {"report.html", "audit.json"} <= {path.name for path in tmp_path.iterdir()}
