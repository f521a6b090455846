"""Two penalties at equal D-calibration: levels, shares and ties."""

import json

import numpy as np
import pytest

from xcal_paper import compare_penalties
from xcal_paper.report import draw_frontier, penalties_as_json, penalties_as_text

from .made_records import path_metrics, write


def test_levels_at_which_ours_wins_on_both_are_counted(small, tmp_path):
    path = small(("lambdas = [0, 10]", "lambdas = [0, 1, 10, 100]"))
    write(tmp_path, path, path_metrics(lambda lam: 1 + lam, lambda lam: 0.9 - lam / 1000))
    # Ours costs half as much in NLL; in concordance it costs the same at 100 and less before.
    write(
        tmp_path,
        path,
        path_metrics(lambda lam: 1 + lam / 2, lambda lam: 0.9 - (lam / 2000 if lam < 100 else 0.1)),
        penalty="ours",
    )
    found = compare_penalties(path, results=tmp_path)
    assert len(found.levels) == 9  # three models, three lambdas above zero
    assert found.share == pytest.approx(2 / 3)
    assert found.share_nll == 1
    assert found.share_concordance == pytest.approx(2 / 3)
    # Gains of each model at lambda 1, 10 and 100: 0.5, 5 and 50 in NLL; 0.0005, 0.005 and 0 in concordance.
    assert found.median_gain == pytest.approx((5, 0.0005))
    assert "NLL 5.0000, concordance 0.0005" in penalties_as_text(found)
    assert "categorical-ni: 2 of 3" in penalties_as_text(found)
    assert json.loads(penalties_as_json(found))["share"] == pytest.approx(2 / 3)


def test_the_annealed_penalty(small, tmp_path):
    path = small()
    write(tmp_path, path, path_metrics(lambda lam: 2.0, lambda lam: 0.5))
    write(tmp_path, path, path_metrics(lambda lam: 1.0, lambda lam: 0.9), penalty="annealed")
    assert compare_penalties(path, results=tmp_path).levels == ()
    found = compare_penalties(path, penalty="annealed", results=tmp_path)
    assert found.share == 1
    assert "our penalty (annealed) against the paper's at 3 levels" in penalties_as_text(found)
    write(tmp_path, path, path_metrics(lambda lam: 0.5, lambda lam: 0.95), penalty="ours")
    found = compare_penalties(path, penalty="annealed", against="ours", results=tmp_path)
    assert (found.share, found.share_matched) == (0, 0)
    assert "our penalty (annealed) against our penalty at 3 levels" in penalties_as_text(found)
    with pytest.raises(ValueError, match="penalty: expected another penalty than ours"):
        compare_penalties(path, against="ours", results=tmp_path)
    picture = draw_frontier(path, tmp_path / "frontier.png", results=tmp_path)
    assert picture.stat().st_size > 0


def test_a_model_with_missing_lambdas_is_not_compared(small, tmp_path):
    part = small(("lambdas = [0, 10]", "lambdas = [0, 1]"))
    write(tmp_path, part, path_metrics(lambda lam: 1.0, lambda lam: 0.9), penalty="ours")
    whole = small(("lambdas = [0, 10]", "lambdas = [0, 1, 10]"))
    write(tmp_path, whole, path_metrics(lambda lam: 2.0, lambda lam: 0.5))
    found = compare_penalties(whole, results=tmp_path)
    assert found.levels == ()
    assert len(found.incomplete) == 3
    assert "not compared, as no seed has both penalties at all lambdas: " in penalties_as_text(found)


def test_penalties_are_compared_on_the_seeds_that_both_have(small, tmp_path):
    path = small()

    def by_seed(nll):
        """Seed 1 is an easy split of the data: its NLL is lower by 10 whatever the penalty."""
        return lambda model, lam, seed: path_metrics(lambda _: nll - 10 * seed, lambda _: 0.9)(model, lam, seed)

    write(tmp_path, path, by_seed(2.0), seeds=(0, 1))
    write(tmp_path, path, by_seed(1.0), seeds=(0, 2), penalty="ours")
    # A seed that has some of the lambdas has no path.
    part = small(("lambdas = [0, 10]", "lambdas = [0]"), name="part.toml")
    write(tmp_path, part, by_seed(1.0), seeds=(1,), penalty="ours")
    found = compare_penalties(path, results=tmp_path)
    assert found.share_nll == 1
    assert {level.nll for level in found.levels} == {2.0}
    assert found.seeds == dict.fromkeys(("lognormal-nll", "categorical-ni", "mtlr-i"), (0,))
    assert "mtlr-i: 0 of 1 (seeds 0)" in penalties_as_text(found)
    assert json.loads(penalties_as_json(found))["seeds"]["mtlr-i"] == [0]
    write(tmp_path, path, by_seed(0.5), seeds=(0, 1), variant="corrected", penalty="ours")
    write(tmp_path, path, by_seed(0.5), seeds=(1, 2), penalty="annealed")
    found = compare_penalties(path, penalty="annealed", against="ours", results=tmp_path)
    assert set(found.seeds.values()) == {(2,)}
    assert found.lognormal["lognormal-nll, lambda 10"] == ["nll"]


def test_a_level_that_ours_never_reaches_is_lost(small, tmp_path):
    path = small()
    write(tmp_path, path, path_metrics(lambda lam: 2.0, lambda lam: 0.5))

    def blunt(model, lam, seed):
        return path_metrics(lambda lam: 1.0, lambda lam: 0.9)(model, lam, seed) | {"dcal": 0.5}

    write(tmp_path, path, blunt, penalty="ours")
    found = compare_penalties(path, results=tmp_path)
    assert found.share == found.share_nll == found.share_concordance == found.share_matched == 0
    assert np.isnan(found.median_gain).all()


@pytest.mark.parametrize(
    ("nll", "concordance", "matched"), [(1.04, 0.79, 1), (0.5, 0.9, 1), (1.06, 0.9, 0), (0.5, 0.77, 0)]
)
def test_a_level_is_matched_by_the_rule_of_the_tables(small, tmp_path, nll, concordance, matched):
    path = small()
    write(tmp_path, path, path_metrics(lambda lam: 1.0, lambda lam: 0.8))
    write(tmp_path, path, path_metrics(lambda lam: nll, lambda lam: concordance), penalty="ours")
    found = compare_penalties(path, results=tmp_path)
    assert found.share_matched == matched
    assert f"concordance within .02): {matched:.0%}" in penalties_as_text(found)


def test_between_two_lambdas_the_path_is_a_line(small, tmp_path):
    path = small(("lambdas = [0, 10]", "lambdas = [0, 1, 100]"))

    def with_dcal(values, nll):
        def metrics(model, lam, seed):
            return path_metrics(nll, lambda _: 0.9)(model, lam, seed) | {"dcal": values[lam]}

        return metrics

    write(tmp_path, path, with_dcal({0: 1.0, 1: 1e-2, 100: 1e-4}, lambda lam: {0: 0.0, 1: 2.0, 100: 4.0}[lam]))
    # Ours passes 1e-2 half way, in logarithms, between NLL 1 and 2: at 1.5, below 2. At 1e-4 it is at 2.
    write(
        tmp_path,
        path,
        with_dcal({0: 1.0, 1: 1e-1, 100: 1e-3}, lambda lam: {0: 0.0, 1: 1.0, 100: 2.0}[lam]),
        penalty="ours",
    )
    found = compare_penalties(path, results=tmp_path)
    assert [level.our_nll for level in found.levels[:2]] == pytest.approx([1.5, np.nan], nan_ok=True)
    assert [level.nll for level in found.levels[:2]] == [2.0, 4.0]


def test_below_the_floor_d_calibration_does_not_decide(small, tmp_path):
    path = small()

    def at(dcal, nll, concordance):
        def metrics(model, lam, seed):
            return path_metrics(lambda _: nll, lambda _: concordance)(model, lam, seed) | {
                "dcal": dcal,
                "dcal_floor": 1e-4,
            }

        return metrics

    write(tmp_path, path, at(2e-5, 1.0, 0.8))
    write(tmp_path, path, at(1.9e-4, 0.9, 0.9), penalty="ours")
    assert compare_penalties(path, results=tmp_path).share == 1


def test_the_corrected_log_normal_is_held_against_the_published_one(small, tmp_path):
    path = small(("lambdas = [0, 10]", "lambdas = [0, 10, 500]"))
    write(tmp_path, path, path_metrics(lambda lam: 1.0, lambda lam: 0.9))

    def better(model, lam, seed):
        found = path_metrics(lambda lam: 0.5, lambda lam: 0.95)(model, lam, seed)
        return found | {"dcal": found["dcal"] / 2 if lam == 0 else 1.0}

    write(tmp_path, path, better, variant="corrected", penalty="ours")
    found = compare_penalties(path, results=tmp_path)
    assert found.lognormal == {
        "lognormal-nll, lambda 0": ["nll", "dcal", "concordance"],
        "lognormal-nll, lambda 10": ["nll", "concordance"],
    }
