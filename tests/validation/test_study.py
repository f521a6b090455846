"""What the authors say of their study reaches the report, and checklists say what is still open."""

import tomllib
from dataclasses import fields, replace

import pytest
from typer.testing import CliRunner

import xcal
from tests.validation.made_result import made_result
from xcal.cli.app import app
from xcal.validation.study import PROBAST, TRIPOD, Study, new_study, probast, read_study, template, tripod

# Items of TRIPOD+AI that its table marks for the evaluation of a model, and 15, which usefulness speaks to.
EVALUATION = (
    "1 2 3a 3b 3c 4 5a 5b 6a 6b 6c 7 8a 8b 8c 9b 9c 10 11 12d 12e 12f 12g 13 14 15 16 17 18a 18b 18c 18d 18e 18f 19 "
    "20a 20b 20c 21 23a 23b 24 25 26 27c"
)


def keys():
    """Every key of a study file, with the items that it answers."""
    for part in fields(Study):
        inner = fields(part.default_factory) if isinstance(part.default_factory, type) else (part,)
        for one in inner:
            yield (one.name,) if one is part else (part.name, one.name), one.metadata["answers"]


def filled():
    study = {}
    for place, _ in keys():
        target = study if len(place) == 1 else study.setdefault(place[0], {})
        target[place[-1]] = f"What is said of {'.'.join(place)}."
    return study


def test_every_item_and_question_is_listed_once():
    assert [number for number, *_ in TRIPOD] == EVALUATION.split()
    questions = [number for number, *_ in PROBAST]
    assert questions == [f"{k}.{n}" for k, last in ((1, 3), (2, 4), (3, 4), (4, 7)) for n in range(1, last + 1)]
    assert len(questions) == 18


def test_every_key_answers_an_item_that_is_listed():
    listed = {number for number, *_ in TRIPOD} | {f"P{number}" for number, *_ in PROBAST}
    for place, answers in keys():
        assert answers, place
        assert set(answers) <= listed, place
    answered = {answer for _, answers in keys() for answer in answers}
    by_audit = {number for number, _, audit in TRIPOD if audit} | {
        f"P{number}" for number, _, audit in PROBAST if audit
    }
    assert listed - answered - by_audit == {"2"}  # the abstract


def test_a_template_has_every_key_and_is_read_again(tmp_path):
    path = new_study(tmp_path / "study.toml")
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    assert read_study(path) == Study()
    places = {
        (k,) if isinstance(v, str) else (k, n) for k, v in content.items() for n in (v if isinstance(v, dict) else [k])
    }
    assert places == {place for place, _ in keys()}
    assert all(len(line) <= 100 for line in template().splitlines())
    with pytest.raises(ValueError, match="path: expected a file that is not there yet"):
        new_study(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('titel = "x"', "study.toml: expected one of the keys title, background"),
        ("title = 3", "study.toml.title: expected text, got 3"),
        ('[data]\nsourze = "x"', "study.toml.data: expected one of the keys source"),
        ("title = x", r"study, .*study.toml: expected TOML in UTF-8, got text that is none \(.*line 1"),
        ('data = "x"', "study.toml.data: expected a table of keys and values"),
    ],
)
def test_what_is_wrong_in_a_study_file_is_named(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_study("study.toml")
    with pytest.raises(ValueError, match="study: expected a TOML file"):
        read_study("other.toml")


def states(checklist):
    return {item.number: item.answered for item in checklist.items}


def test_items_say_who_answers_them():
    result = made_result()
    before, questions = states(tripod(result)), states(probast(result))
    assert (before["18a"], before["23a"], before["8a"], before["2"]) == ("open", "audit", "in part", "open")
    assert (questions["1.1"], questions["4.6"], questions["4.2"]) == ("open", "audit", "in part")
    told = replace(result, study=read_study(filled()))
    after = states(tripod(told))
    assert (after["18a"], after["23a"], after["8a"], after["2"]) == (
        "study file",
        "audit",
        "audit and study file",
        "open",
    )
    assert set(after.values()) <= {"audit", "study file", "audit and study file", "in part", "open"}
    assert [number for number, state in after.items() if state == "open"] == ["2", "12f", "16", "20b", "20c", "24"]
    assert "open" not in states(probast(told)).values()
    (funding,) = [item for item in tripod(told).items if item.number == "18a"]
    assert funding.where == "Study file: statements.funding."


def test_the_command_writes_a_template_and_takes_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["audit", "--new-study", "study.toml"])
    assert done.exit_code == 0
    assert read_study("study.toml") == Study()
    assert CliRunner().invoke(app, ["audit", "--new-study", "study.toml"]).exit_code != 0
    lines = [f"{k + 1},{k % 2},{(k % 9 + 1) / 10}" for k in range(60)]
    (tmp_path / "p.csv").write_text("\n".join(["t,e,r", *lines]))
    (tmp_path / "study.toml").write_text('title = " A  study of\nrows"'.replace("\n", " "))
    words = ["audit", "p.csv", "--time=t", "--event=e", "--risk=r", "--horizon=30", "--resamples=0", "--json=a.json"]
    done = CliRunner().invoke(app, [*words, "--study=study.toml"])
    assert done.exit_code == 0, done.output
    assert '"title": "A study of rows"' in (tmp_path / "a.json").read_text()


def test_an_audit_keeps_what_is_said_of_the_study():
    rows = {"risk": [k % 9 / 10 for k in range(60)], "horizons": 30.0, "y": (range(1, 61), [k % 2 for k in range(60)])}
    found = xcal.audit(**rows, n_bootstrap=0, study=filled(), progress=False)
    assert found.study.statements.funding == "What is said of statements.funding."
    with pytest.raises(ValueError, match="study: expected a TOML file, or a table of its keys, got int"):
        xcal.audit(**rows, n_bootstrap=0, study=3)
