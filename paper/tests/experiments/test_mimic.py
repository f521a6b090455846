"""The length-of-stay table: records say which data they are of, and rows of one subject are not independent."""

import json
import math

import numpy as np
import pytest

from xcal_paper import RecordFile, compare, load_mimic_los, load_spec, reproduce
from xcal_paper.evaluation import mean_intervals
from xcal_paper.mimic3 import generate, prepare
from xcal_paper.report import as_json, markdown, write_pages

# mimic-los itself, with small networks.
SMALL = (
    ("epochs = 200", "epochs = 2"),
    ("batch_size = 5000", "batch_size = 200"),
    ("lambdas = [0, 1, 5, 10, 50, 100, 500, 1000]", "lambdas = [0, 10]"),
    ("seeds = [0, 1, 2]", "seeds = [0]"),
    ("[128, 64, 64]", "[8]"),
    ("[2048, 1024, 1024]", "[8]"),
)


def small_spec(path, table="mimic-los"):
    """Write a small spec of the table to `path`."""
    from xcal_paper.spec import _folder

    text = (_folder() / f"{table}.toml").read_text()
    for old, new in SMALL:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Prepared folders of made-up subjects, with deaths as events and censored."""
    folder = tmp_path_factory.mktemp("made-up")
    generate(folder / "raw", scale=0.3, seed=5)
    return {
        death: prepare(folder / "raw", folder / death, death=death, threads=1).folder for death in ("event", "censor")
    }


@pytest.fixture(scope="module")
def records(made_up, tmp_path_factory):
    """Spec, results and summary of a run on the made-up subjects."""
    folder = tmp_path_factory.mktemp("records")
    spec = small_spec(folder / "small.toml")
    return spec, folder, reproduce(spec, results=folder, data_dir=made_up["event"], device="cpu")


def test_records_of_other_data_are_kept_apart(records):
    spec, results, summary = records
    assert summary.trained == 6
    assert summary.path == results / "mimic-los" / "other" / "as-published.paper.jsonl"
    found, _ = RecordFile(summary.path).read()
    assert {record.data for record in found.values()} == {"MIMIC-III length of stay, other data"}
    assert not compare(spec, results=results).records
    assert len(compare(spec, results=results, part="other").records) == 6
    with pytest.raises(ValueError, match="part: expected one of '', 'demo', 'other', got 'full'"):
        compare(spec, results=results, part="full")
    with pytest.raises(ValueError, match="part: expected one of '', got 'demo'"):
        compare("gamma-censored", results=results, part="demo")


def test_the_table_says_that_the_data_is_not_the_papers(records):
    spec, results, _ = records
    found = compare(spec, results=results, part="other")
    text = markdown(found)
    assert "neither the full data nor its demo" in text
    assert "## Intervals by subject" in text
    assert "[3.142]" in text  # the paper's value beside ours
    assert json.loads(as_json(found))["part"] == "other"


def test_metrics_have_intervals_by_subject_and_no_p_value(records, made_up):
    _, _, summary = records
    found, _ = RecordFile(summary.path).read()
    test = load_mimic_los(made_up["event"]).test
    for record in found.values():
        metrics = record.metrics
        assert not any("p_value" in name or name.endswith("_p") for name in metrics)
        for name in ("nll", "dcal", "concordance"):
            # Percentiles need not hold the value itself; the interval of a distance does.
            assert metrics[f"{name}_lower"] <= metrics[f"{name}_upper"]
        assert metrics["dcal_lower"] <= metrics["dcal"] <= metrics["dcal_upper"]
        # Far above the floor of independent rows, (1 - 1/20) / n.
        assert metrics["dcal_floor"] > 3 * 0.95 / test.n


def test_interval_of_a_mean_is_that_of_cluster_means():
    """Equal rows within clusters: the spread of the mean is that of as many values as there are clusters."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=400)
    cluster = np.repeat(np.arange(400), 5)
    ((lower, upper),) = mean_intervals(value[cluster][None], cluster)
    expected = 2 * 1.96 * value.std() / math.sqrt(400)
    # 200 resamples: the width is known to about a tenth.
    assert upper - lower == pytest.approx(expected, rel=0.25)
    assert lower < value.mean() < upper


def test_a_second_run_does_nothing_and_censored_deaths_have_their_own_records(records, made_up, tmp_path):
    spec, results, summary = records
    assert reproduce(spec, results=results, data_dir=made_up["event"], device="cpu").kept == 6
    censored = small_spec(tmp_path / "censored.toml", "mimic-los-death-censored")
    run = reproduce(censored, models=["categorical-i"], results=results, data_dir=made_up["censor"], device="cpu")
    assert run.path == results / "mimic-los-death-censored" / "other" / "as-published.paper.jsonl"
    assert run.path != summary.path
    with pytest.raises(ValueError, match=r"folder: expected a folder prepared with --death censor"):
        reproduce(censored, results=tmp_path, data_dir=made_up["event"], device="cpu")


def test_too_few_subjects_are_found_before_training(tmp_path):
    generate(tmp_path / "raw", scale=0.08, seed=5)
    folder = prepare(tmp_path / "raw", tmp_path / "los", threads=1).folder
    with pytest.raises(ValueError, match="data: expected at least two subjects in every group of the test rows"):
        reproduce(small_spec(tmp_path / "small.toml"), results=tmp_path, data_dir=folder, device="cpu")


def test_the_folder_must_be_given(tmp_path):
    with pytest.raises(ValueError, match=r"data_dir: expected the folder that xcal mimic prepare has made \(--data\)"):
        reproduce("mimic-los", results=tmp_path, device="cpu")


def test_only_what_death_is_differs_between_the_two_tables():
    from dataclasses import replace

    event, censor = load_spec("mimic-los"), load_spec("mimic-los-death-censored")
    assert replace(censor, table=event.table, title=event.title, data=event.data) == event
    assert replace(censor.data, death="event", censored=False) == event.data
    model = event.models[0]
    hashes = {spec.hash(model, "as-published", "paper") for spec in (event, censor)}
    assert len(hashes) == 2


def test_networks_are_those_of_the_appendix():
    spec = load_spec("mimic-los")
    assert {model.name: (model.hidden, model.dropout) for model in spec.models} == {
        "lognormal-scrps": ((128, 64, 64), 0.15),
        "categorical-ni": ((2048, 1024, 1024), 0.15),
        "categorical-i": ((2048, 1024, 1024), 0.15),
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("censored = false", "censored = true", "data.censored: expected true with death = 'censor'"),
        (
            'groups = "first-day"',
            'groups = "label"',
            "data.groups: expected a grouping defined for this data set, 'first-day'",
        ),
        ("censored = false", "censored = false\nseed = 3", "data.seed, data.per_seed: expected neither"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, old, new, message):
    path = small_spec(tmp_path / "small.toml")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        load_spec(path)


@pytest.mark.ci
def test_a_table_of_the_demo_carries_the_note(real_data, tmp_path):
    raw = real_data("mimic3") / "mimic3" / "demo"
    prepare(raw, tmp_path / "los", threads=1)
    spec = small_spec(tmp_path / "small.toml")
    run = reproduce(spec, models=["categorical-i"], results=tmp_path, data_dir=tmp_path / "los", device="cpu")
    assert run.path == tmp_path / "mimic-los" / "demo" / "as-published.paper.jsonl"
    text = markdown(compare(spec, results=tmp_path, part="demo"))
    assert "The data is the open demo of MIMIC-III" in text


def test_pages_of_parts_have_their_own_folder(records, tmp_path):
    """`results-page` knows tables by name, so records of the small spec are shown as none, and nothing breaks."""
    _, results, _ = records
    assert write_pages(results)[-1] == results / "README.md"
