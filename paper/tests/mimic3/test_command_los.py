"""Options of `xcal reproduce` and `xcal compare` that only the length-of-stay table has."""

from pathlib import Path

import pytest

from xcal_paper.commands import by_death

from ..test_reproduce_and_compare import xcal

__all__ = ["xcal"]

RESULTS = Path(__file__).parents[2] / "results"


def test_the_table_for_each_treatment_of_deaths():
    assert by_death("mimic-los", None) == "mimic-los"
    assert by_death("mimic-los", "censor") == "mimic-los-death-censored"
    assert by_death("mimic-los-death-censored", "event") == "mimic-los"
    assert by_death("gamma-censored", None) == "gamma-censored"
    with pytest.raises(ValueError, match="death: expected event or censor, got 'drop'"):
        by_death("mimic-los", "drop")
    with pytest.raises(ValueError, match="death: expected nothing for glioma, which has no deaths in the unit"):
        by_death("glioma", "censor")


def test_a_folder_must_be_given_and_prepared(xcal, tmp_path):
    code, _, err = xcal("reproduce", "mimic-los", "--results", tmp_path)
    assert code == 2
    assert "error: data_dir: expected the folder that xcal mimic prepare has made (--data), got none" in err
    code, _, err = xcal("reproduce", "mimic-los", "--death", "censor", "--data", tmp_path, "--results", tmp_path)
    assert code == 2
    assert "manifest.json: expected the manifest of a prepared folder, got no such file" in err


def test_records_of_the_demo_are_found_by_their_part(xcal):
    """The committed ones."""
    code, out, _ = xcal("compare", "mimic-los", "--part", "demo", "--results", RESULTS)
    assert code == 0
    assert "The data is the open demo of MIMIC-III" in out
    code, _, err = xcal("compare", "mimic-los", "--results", RESULTS)
    assert code == 2
    assert "holds records of the demo, which --part demo shows" in err
    code, _, err = xcal("compare", "mimic-los", "--part", "demo", "--equal-dcal", "--results", RESULTS)
    assert code == 2
    assert "part: expected nothing with --equal-dcal" in err
