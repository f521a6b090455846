"""The command line as a whole: quick help, one-line errors."""

import subprocess
import sys

import pytest

from xcal import __version__
from xcal.cli.app import main

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
