"""`xcal reproduce` and `xcal compare` as a user types them."""

import json
import sys

import pytest

from xcal.cli.app import main
from xcal_paper import table_names


@pytest.fixture
def xcal(monkeypatch, capsys):
    """Run the command line; returns exit code, standard output and standard error."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["xcal", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as done:
            code = done.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_from_nothing_to_a_table(xcal, small, tmp_path):
    path, results = small(), tmp_path / "results"
    words = [path, "--results", results]
    only = ["--models", "mtlr-i, categorical-ni", "--lambdas", "0,10", "--seeds", "0,1", "--device", "cpu"]
    code, out, _ = xcal("reproduce", *words, *only)
    assert code == 0
    assert "8 runs trained" in out
    code, out, _ = xcal("reproduce", *words, *only)
    assert "0 runs trained" in out
    assert "8 were there already" in out
    code, out, _ = xcal("compare", *words)
    assert code == 0
    assert "| MTLR | D-cal |" in out
    assert "6 cells have no record yet" in out
    code, out, _ = xcal("compare", *words, "--json")
    content = json.loads(out)
    assert content["compared"] == 12
    assert 0 <= content["score"] <= 1
    files = {name: tmp_path / f"made.{name}" for name in ("md", "csv", "png")}
    chosen = ["--markdown", files["md"], "--csv", files["csv"], "--picture", files["png"], "--of", "nll"]
    code, out, _ = xcal("compare", *words, *chosen)
    assert code == 0
    assert out == ""
    assert all(file.stat().st_size > 0 for file in files.values())
    # The comparison of penalties needs the records of both penalties.
    code, out, err = xcal("compare", *words, "--equal-dcal")
    assert code == 2
    assert "expected records of small, as-published, penalty ours" in err
    xcal("reproduce", *words, *only, "--penalty", "ours")
    code, out, _ = xcal("compare", *words, "--equal-dcal")
    assert "our penalty against the paper's at 2 levels" in out
    code, out, _ = xcal("compare", *words, "--equal-dcal", "--json")
    assert len(json.loads(out)["levels"]) == 2


def test_the_hint_of_a_trial_without_records_names_its_epochs(xcal, small, tmp_path):
    code, _, err = xcal("compare", small(), "--epochs", "7", "--results", tmp_path)
    assert code == 2
    assert "--penalty paper --epochs 7 makes them" in err


def test_several_tables_in_one_go(xcal, small, tmp_path):
    paths = [small(('table = "small"', f'table = "{name}"'), name=f"{name}.toml") for name in ("one", "other")]
    only = ["--models", "mtlr-i", "--lambdas", "0", "--seeds", "0", "--device", "cpu", "--results", tmp_path / "r"]
    code, out, _ = xcal("reproduce", *paths, *only)
    assert code == 0
    assert [line.split(":")[1].split(" in ")[0] for line in out.splitlines()] == [" 1 runs trained"] * 2
    # A typo in the last one is found before the first one is trained.
    code, out, err = xcal("reproduce", paths[0], "gama", *only[:-1], tmp_path / "s")
    assert code == 2
    assert err.startswith("error: table: expected one of")
    assert not (tmp_path / "s").exists()
    # So is a penalty that one of them does not have.
    study = small(('kind = "path"', 'kind = "jensen-slack"'), name="study.toml")
    code, out, err = xcal("reproduce", paths[0], study, "--penalty", "ours", *only[:-1], tmp_path / "s")
    assert code == 2
    assert "is a study of the paper's penalty" in err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "gama"], "error: table: expected one of gamma-censored"),
        (["compare", "gama"], "error: table: expected one of gamma-censored"),
        (["reproduce", "gamma-censored", "--models", "cat"], "error: models: expected some of lognormal-nll"),
        (["reproduce", "gamma-censored", "--lambdas", "0,2"], "error: lambdas: expected some of 0, 1, 5"),
        (["reproduce", "gamma-censored", "--lambdas", "0;2"], "error: lambdas: expected numbers with commas"),
        (["reproduce", "gamma-censored", "--seeds", "a"], "error: seeds: expected whole numbers with commas"),
        (["reproduce", "gamma-censored", "--variant", "x"], "error: variant: expected as-published or corrected"),
        (["compare", "gamma-censored", "--penalty", "x"], "error: penalty: expected paper or ours"),
        (
            ["compare", "gamma-censored", "--penalty", "paper", "--equal-dcal"],
            "error: penalty: expected another penalty than paper",
        ),
        (
            ["compare", "gamma-censored", "--equal-dcal", "--against", "x"],
            "error: against: expected one of 'paper', 'ours'",
        ),
        (
            ["compare", "gamma-censored", "--against", "ours"],
            "error: --against: expected with --equal-dcal",
        ),
        (
            ["compare", "gamma-choice", "--equal-dcal"],
            "error: table: expected a table of models, which has paths to compare",
        ),
    ],
)
def test_a_mistake_is_one_line(xcal, words, message):
    code, out, err = xcal(*words)
    assert code == 2
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_a_corrupt_record_is_reported(xcal, small, tmp_path):
    path = small()
    words = [path, "--results", tmp_path, "--device", "cpu", "--models", "mtlr-i", "--seeds", "0"]
    xcal("reproduce", *words)
    file = tmp_path / "small" / "as-published.paper.jsonl"
    file.write_text(file.read_text()[:-20])
    code, out, err = xcal("compare", path, "--results", tmp_path)
    assert "corrupt record" in err
    code, out, err = xcal("reproduce", *words)
    assert code == 0
    assert "line 2: not a whole line of JSON" in err
    assert "1 runs trained" in out


@pytest.mark.parametrize("command", ["reproduce", "compare"])
def test_help_teaches(xcal, command):
    code, out, _ = xcal(command, "--help")
    assert code == 0
    assert f"xcal {command} gamma-censored" in out
    for table in table_names():
        assert table in out


def test_records_are_kept_where_the_repository_keeps_its_own(xcal, small, tmp_path, monkeypatch):
    path = small()
    monkeypatch.chdir(tmp_path)
    code, out, _ = xcal("reproduce", path, "--models", "mtlr-i", "--seeds", "0", "--device", "cpu")
    assert code == 0
    assert "2 runs trained" in out
    assert (tmp_path / "paper" / "results" / "small" / "as-published.paper.jsonl").is_file()


@pytest.mark.parametrize("command", ["demo", "reproduce", "compare", "results-page"])
def test_examples_of_the_help_can_be_pasted(xcal, command, monkeypatch):
    # On a terminal of 80 columns every example is one line, and every option in it exists.
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = xcal(command, "--help")
    examples = [line.strip() for line in out.splitlines() if line.strip().startswith("xcal ")]
    assert len(examples) >= 1
    known = {}
    for example in examples:
        _, name, *words = example.split()
        if name not in known:
            known[name] = xcal(name, "--help")[1]
        for word in words:
            assert not word.startswith("--") or word in known[name]
    stray = [line for line in out.splitlines() if line.strip().startswith("--") and not line.startswith("│")]
    assert stray == []
