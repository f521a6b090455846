"""Epochs of a model's own, trials by name, and the penalty with a rising weight."""

import json

import pytest

from xcal_paper import RecordFile, compare, compare_penalties, load_spec, reproduce
from xcal_paper import report as results_page
from xcal_paper.report import as_json, markdown

from .made_records import as_the_paper, write

# The log-normal model comes before the categorical one.
AFTER = '\n\n[[models]]\nname = "categorical-ni"'
OWN = (f"hidden = [16]{AFTER}", f"hidden = [16]\npublished_epochs = 3{AFTER}")
TRIALS = ("[variants.as-published]", "[trials]\nappendix = 2\nlong = 5\n\n[variants.as-published]")


def epochs_of(spec, variant="as-published"):
    return [spec.training_of(model, variant).epochs for model in spec.models]


def test_a_model_has_the_epochs_that_it_was_published_with(small):
    spec = load_spec(small(OWN, TRIALS))
    assert epochs_of(spec) == [3, 2, 2]
    assert epochs_of(spec, "corrected") == [2, 2, 2]
    # A trial is for all models, whether by its name or by its number.
    for epochs in ("appendix", 2, "2"):
        assert epochs_of(spec.narrowed(epochs=epochs)) == [2, 2, 2]
    assert epochs_of(spec.narrowed(epochs="long")) == [5, 5, 5]


def test_the_hash_knows_the_epochs_and_not_where_they_are_written(small):
    plain, own = load_spec(small()), load_spec(small(OWN, TRIALS))

    def hashes(spec, variant="as-published"):
        return [spec.hash(model, variant, "paper") for model in spec.models]

    assert hashes(own)[1:] == hashes(plain)[1:]
    assert hashes(own)[0] == hashes(plain.narrowed(epochs=3))[0] != hashes(plain)[0]
    assert hashes(own.narrowed(epochs="appendix")) == hashes(plain)
    assert hashes(own, "corrected") == hashes(plain, "corrected")


def test_the_gamma_tables_name_the_appendix_and_mnist_a_longer_training():
    for table in ("gamma-censored", "gamma-uncensored"):
        assert epochs_of(load_spec(table)) == [500, 500, 100, 100, 100, 100]
        assert load_spec(table).trials == {"appendix": 100}
    for table in ("mnist-censored", "mnist-uncensored"):
        assert load_spec(table).trials == {"long": 600}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epochs = 2", "epochs = 2\n[trials]\nlong = 0"), "trials.long: expected a whole number of 1 or more epochs"),
        (("epochs = 2", "epochs = 2\n[trials]\nlong = true"), "trials.long: expected a whole number, got True"),
        (("epochs = 2", "epochs = 2\n[trials]\n7 = 3"), "trials: expected names of letters"),
        (("epochs = 2", 'epochs = 2\n[trials]\n"a/b" = 3'), "trials: expected names of letters"),
        (("title =", "trials = 3\ntitle ="), "trials: expected a table of keys and values, got 3"),
        (
            ("hidden = [16]", "hidden = [16]\npublished_epochs = 0"),
            r"models\[0\].published_epochs: expected a whole number of 1 or more epochs, got 0",
        ),
    ],
)
def test_epochs_that_make_no_sense_are_refused(small, change, message):
    if "[trials]" in change[1]:  # sections after a section
        change = ("[variants.as-published]", change[1].split("\n", 1)[1] + "\n[variants.as-published]")
    with pytest.raises(ValueError, match=message):
        load_spec(small(change))


def test_an_unknown_trial_is_answered_with_the_known_ones(small):
    with pytest.raises(ValueError, match=r"epochs: expected .* \(appendix, long\), got 'longer'"):
        load_spec(small(TRIALS)).narrowed(epochs="longer")
    with pytest.raises(ValueError, match="epochs: expected a whole number of 1 or more, got 'long'"):
        load_spec(small()).narrowed(epochs="long")
    with pytest.raises(ValueError, match="epochs: expected an integer of 1 or more"):
        load_spec(small()).narrowed(epochs="0")


def test_a_trial_trains_what_the_table_does_not_have(small, tmp_path):
    path = small(OWN, TRIALS)
    only = {"models": ["lognormal-nll", "mtlr-i"], "seeds": [0], "results": tmp_path, "device": "cpu"}
    assert reproduce(path, **only).trained == 4
    table, trial = (RecordFile(tmp_path / "small" / f"{place}as-published.paper.jsonl") for place in ("", "trial/"))
    assert {(r.model, r.epochs) for r in table.read()[0].values()} == {("lognormal-nll", 3), ("mtlr-i", 2)}
    found = reproduce(path, **only, epochs="appendix")
    assert (found.trained, found.kept, found.path) == (2, 2, trial.path)
    assert {(r.model, r.epochs) for r in trial.read()[0].values()} == {("lognormal-nll", 2)}
    assert len(compare(path, epochs="appendix", results=tmp_path).records) == 4


def test_a_trial_is_compared_with_the_records_that_it_shares_with_the_table(small, tmp_path):
    path = small(OWN, TRIALS)
    plain = small(name="plain.toml")
    write(tmp_path, plain, as_the_paper)  # 2 epochs for all models, in the table's file
    table, trial = (RecordFile(tmp_path / "small" / f"{place}as-published.paper.jsonl") for place in ("", "trial/"))
    lines = table.path.read_text().splitlines(keepends=True)
    moved = [line for line in lines if '"row": "lognormal-nll"' in line]
    assert len(moved) == 4
    trial.path.parent.mkdir()
    trial.path.write_text("".join(moved))
    table.path.write_text("".join(line for line in lines if line not in moved))
    own, appendix = compare(path, results=tmp_path), compare(path, epochs="appendix", results=tmp_path)
    assert (own.n_missing, appendix.n_missing, appendix.score) == (6, 0, 1.0)
    assert (own.trial, appendix.trial) == ("", "appendix")
    assert "2 epochs; Log-normal: 3. " in markdown(own)
    assert "2 epochs (trial: appendix). " in markdown(appendix)
    assert json.loads(as_json(appendix))["trial"] == "appendix"
    assert compare_penalties(path, epochs="appendix", results=tmp_path).trial == "appendix"


def test_a_trial_by_another_score_trains_the_models_of_the_survival_crps_with_it(small, tmp_path):
    scores = ("[variants.as-published]", '[score_trials]\nproper = "censored-crps"\n\n[variants.as-published]')
    path = small(("hidden = [16]" + AFTER, 'hidden = [16]\nobjective = "scrps"' + AFTER), scores)
    only = {"models": ["lognormal-nll", "mtlr-i"], "seeds": [0], "results": tmp_path, "device": "cpu"}
    assert reproduce(path, **only).trained == 4
    found = reproduce(path, **only, epochs="proper")
    assert (found.trained, found.kept, found.path.parent.name) == (2, 2, "trial")
    proper, published = compare(path, epochs="proper", results=tmp_path), compare(path, results=tmp_path)
    assert (proper.trial, len(proper.records), len(published.records)) == ("proper", 4, 4)
    dcal = [
        {r.lam: r.metrics["dcal"] for r in one.records if r.model == "lognormal-nll"} for one in (proper, published)
    ]
    assert all(dcal[0][lam] != dcal[1][lam] for lam in dcal[0])
    for table in ("gamma-censored", "mnist-censored"):
        assert load_spec(table).score_trials == {"proper": "censored-crps"}
    with pytest.raises(ValueError, match=r"score_trials\.proper: expected 'censored-crps'"):
        load_spec(small((scores[0], scores[1].replace("censored-", "uncensored-"))))


def test_pages_of_trials_stand_beside_their_records(tmp_path, monkeypatch):
    """A trial has a page of its own only where it has records of its own: the corrected variant has none here."""
    for variant, penalty in (("as-published", "paper"), ("corrected", "ours")):
        write(tmp_path, "gamma-censored", as_the_paper, variant=variant, penalty=penalty, epochs="appendix")
    monkeypatch.setattr(results_page, "draw_frontier", lambda table, picture, **options: picture)
    written = {str(page.relative_to(tmp_path)) for page in results_page.write_pages(tmp_path) if page.suffix == ".md"}
    assert written == {
        "README.md",
        "gamma-censored/as-published.paper.md",  # the models whose epochs are those of the appendix
        "gamma-censored/trial/as-published.paper.appendix.md",
        "gamma-censored/corrected.ours.md",
    }
    index = (tmp_path / "README.md").read_text()
    assert "[Gamma simulation, censored (appendix)](gamma-censored/trial/as-published.paper.appendix.md)" in index


def test_a_rising_weight_is_a_penalty_of_its_own(small, tmp_path):
    path = small(("epochs = 2", "epochs = 4"))
    only = {"models": ["mtlr-i"], "seeds": [0], "results": tmp_path, "device": "cpu"}
    by_lam = []
    for penalty in ("ours", "annealed", "ramped"):
        file = reproduce(path, **only, penalty=penalty).path
        by_lam.append({r.lam: r.metrics["nll"] for r in RecordFile(file).read()[0].values()})
    # Without a penalty its form does not matter; with one it does.
    assert len({found[0.0] for found in by_lam}) == 1
    assert len({found[10.0] for found in by_lam}) == 3
    spec = load_spec(path)
    assert spec.training.config("ramped").penalty_schedule == "anneal"
    hashes = {spec.hash(spec.models[0], "as-published", p) for p in ("paper", "ours", "annealed", "ramped")}
    assert len(hashes) == 4
