"""The command line as a whole: quick help, one-line errors."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from xcal import __version__
from xcal.cli.app import app, main

HEAVY = ["torch", "numpy", "pandas", "sklearn", "matplotlib", "scipy"]


def run(*words):
    return subprocess.run([sys.executable, "-m", "xcal", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        *(
            [name, "--help"]
            for name in ("demo", "fit", "predict", "evaluate", "report", "audit", "reproduce", "compare")
        ),
    ],
)
def test_help_imports_nothing_heavy(words):
    code = (
        "import sys; sys.argv[0] = 'xcal'\n"
        "from xcal.cli.app import app\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_version():
    assert run("--version").stdout.strip() == f"xcal {__version__}"


def test_no_command_shows_the_help():
    done = run()
    assert "demo" in done.stdout + done.stderr


def test_an_error_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["xcal", "demo", "--dataset", "moon"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    expected = "error: --dataset: expected one of simulated, metabric, support, got 'moon'"
    assert capsys.readouterr().err.strip() == expected


def broken_library(*_, **__):
    raise SystemError("no interrupt")


def wrapped_interrupt(*_, **__):
    """What a library raises that is interrupted while it is imported."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        raise SystemError("initialization returned a result with an exception set") from interrupt


def test_an_interrupt_that_a_library_wraps_is_one(monkeypatch):
    monkeypatch.setattr("xcal.cli.table_file.read_table_file", wrapped_interrupt)
    done = CliRunner().invoke(app, ["audit", "p.csv", "--time", "t", "--event", "e", "--cdf", "F"])
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")
    monkeypatch.setattr("xcal.cli.table_file.read_table_file", broken_library)
    done = CliRunner().invoke(app, ["audit", "p.csv", "--time", "t", "--event", "e", "--cdf", "F"])
    assert isinstance(done.exception, SystemError)


def test_an_interrupt_before_a_command_begins_gets_a_word(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["xcal", "audit", "--help"])
    monkeypatch.setattr("typer.core.TyperGroup.invoke", interrupt)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupted_command_says_so_once(monkeypatch, capsys):
    monkeypatch.setattr("xcal.cli.table_file.read_table_file", wrapped_interrupt)
    monkeypatch.setattr("sys.argv", ["xcal", "audit", "p.csv", "--time", "t", "--event", "e", "--cdf", "F"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
