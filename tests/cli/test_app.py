"""The command line as a whole: quick help, one-line errors."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from xcal import __version__
from xcal.cli.app import app, main

HEAVY = ["torch", "numpy", "pandas", "sklearn", "matplotlib", "scipy"]


COMMANDS = ("", "demo", "fit", "predict", "evaluate", "report", "audit", "reproduce", "compare")


def test_help_imports_nothing_heavy():
    """One fresh Python for all commands, which says after each what it has imported."""
    code = (
        "import sys\n"
        "from xcal.cli.app import app\n"
        "for command in sys.argv[1:]:\n"
        "    sys.argv = ['xcal', *command.split(), '--help']\n"
        "    try:\n        app()\n    except SystemExit:\n        pass\n"
        f"    print('imported by', repr(command), [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *COMMANDS], capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage") == len(COMMANDS)
    told = [line for line in done.stdout.splitlines() if line.startswith("imported by")]
    assert told == [f"imported by {command!r} []" for command in COMMANDS]


def test_version():
    command = [sys.executable, "-m", "xcal", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"xcal {__version__}"


def test_no_command_shows_the_help():
    assert "demo" in CliRunner().invoke(app, []).output


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
