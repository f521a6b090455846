"""Every example runs with the arguments of a command, draws, and shows what its page says."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Each script with few rows. paper_figures.py is in tests/paper.
COMMANDS = {
    "assumptions.py": ["--n", "5000", "--seeds", "4"],
    "censoring.py": ["--n", "2000", "--seeds", "2", "--small-sets", "20"],
    "frontier.py": ["--epochs", "12", "--out", "."],
    "recalibration.py": [],
    "report.py": ["--n", "800", "--resamples", "30", "--out", "."],
    "train.py": ["--lam", "0", "100", "--epochs", "5"],
    "processes_ddp.py": ["--epochs", "2"],
    "processes_lightning.py": ["--epochs", "2"],
    "processes_accelerate.py": ["--epochs", "2"],
}


@pytest.fixture
def lines(tmp_path, monkeypatch, capsys):
    """A function: the lines that an example prints. It runs here, as a fresh Python would import torch for seconds."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        monkeypatch.setattr(sys, "argv", [name, *COMMANDS[name]])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    with plt.rc_context():
        plt.switch_backend("agg")
        yield run
        plt.close("all")


def last_number(line):
    return float(re.findall(r"\d+\.\d+", line)[-1])


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*COMMANDS, "paper_figures.py"}


def test_the_truth_of_the_assumptions_is_the_integral(lines):
    """P(F < b) of hazards s times too high is 1 - (1 - b)^(1/s): 0.0178 at 1.5, whatever is censored."""
    table = {line[:40].strip(): line[40:].split() for line in lines("assumptions.py")[2:]}
    assert table["1.5x too fast"][1] == "0.0178"
    truth, uniform, km = (float(table["1.5x too fast"][column]) for column in (1, 2, 5))
    assert uniform < truth / 2 < 0.75 * truth < km < 1.25 * truth


def test_uniform_loses_sight_of_a_wrong_model_under_censoring(lines, tmp_path):
    out = lines("censoring.py")
    wrong = [line.split() for line in out if re.match(r"\s+\d+%.*±", line)][:5]
    uniform = [float(cells[1]) for cells in wrong]
    assert uniform == sorted(uniform, reverse=True)
    assert uniform[-1] < 0.0178 / 4
    assert (tmp_path / "runs" / "censoring" / "censoring.png").is_file()


@pytest.mark.ci
def test_the_chosen_model_is_better_calibrated_on_new_rows(lines, tmp_path):
    plain, chosen = (
        line for line in lines("frontier.py") if re.match(r"lambda \d+(, recalibrated)?: D-calibration", line)
    )
    assert (tmp_path / "frontier.html").read_text(encoding="utf-8").endswith("</html>\n")
    assert plain.startswith("lambda 0:")
    calibration = [float(re.search(r"D-calibration (\d\.\d+)", line)[1]) for line in (plain, chosen)]
    assert calibration[1] < calibration[0] / 2
    assert last_number(plain) - last_number(chosen) < 0.03


def test_one_map_recalibrates_all_rows_and_not_the_groups(lines):
    rows = [line.split() for line in lines("recalibration.py") if re.match(r"\s*(whole|old|young) ", line)]
    before, after = ({cells[0]: float(cells[3]) for cells in part} for part in (rows[:3], rows[3:]))
    floor = float(rows[3][4])
    assert after["whole"] < 3 * floor < before["whole"] / 5
    assert after["young"] > before["young"]


def test_the_reports_tell_the_good_model_from_the_bad_one(lines, tmp_path):
    out = "\n".join(lines("report.py"))
    good, bad = (float(re.search(rf"{name}.*O/E (\d\.\d+)", out)[1]) for name in ("Good", "Overconfident"))
    assert abs(good - 1) < 0.15 < 1 - bad
    for name in ("good", "bad", "both"):
        assert (tmp_path / f"{name}.html").read_text(encoding="utf-8").endswith("</html>\n")
    for name in ("calibration", "pit", "decision"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_the_penalty_calibrates_a_training_loop(lines):
    table = {(cells[0], cells[1]): cells for cells in (line.split() for line in lines("train.py")[1:])}
    for penalty in ("default", "paper"):
        assert float(table[penalty, "100"][3]) < float(table[penalty, "0"][3]) / 2
    # Both start from the same weights and see the same batches: without weight the penalty must not matter.
    assert table["default", "0"][1:] == table["paper", "0"][1:]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("processes_")])
@pytest.mark.ci
def test_two_processes_train_the_model_of_one(tmp_path, name):
    # Lightning starts its processes itself.
    launcher = [] if "lightning" in name else ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, str(EXAMPLES / name), *COMMANDS[name]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    trained, distance = done.stdout.splitlines()
    assert trained.startswith("2 processes, lam 100: D-cal 0.")
    # Printed with one digit, as in 7.4e-16; twenty steps in double precision.
    assert float(distance.rsplit(" ", 1)[1]) < 1e-9
