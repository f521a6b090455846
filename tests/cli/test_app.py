"""The command line as a whole: quick help, one-line errors."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import xcal
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


# Whose texts come from which files: of the commands that judge, of all that read a table, of one.
JUDGE = ("fit", "evaluate", "report", "audit")
SAID_BY = {
    "validation/": JUDGE,
    "recalibration/": JUDGE,
    "metrics/": JUDGE,
    "interop/": JUDGE,
    "estimators/": ("fit",),
    "training/": ("fit",),
    "outofcore/": ("evaluate",),
    "_workers.py": ("evaluate",),
    "cli/table_file.py": ("evaluate", "report", "audit"),
    "cli/training.py": ("fit",),
    "cli/understanding.py": ("fit",),
    "cli/run_folder.py": ("fit",),
    "cli/fit_run.py": ("fit",),
    "cli/fit.py": ("fit",),
    "cli/audit.py": ("audit",),
}
# Messages of one command that stand in a file of another.
ELSEWHERE = {("cli/training.py", "--copy"): ("predict",), ("cli/training.py", "--after"): ("predict",)}


def texts(path):
    """Every text of a file, the pieces of one sentence together."""
    inside = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def test_every_option_that_a_text_names_is_one_of_the_command_that_shows_it():
    """``(clusters=, in xcal audit --clusters)`` names the command; without its name all that show the text have it."""
    options = {
        command.name: {option for one in command.params for option in one.opts}
        for command in typer.main.get_command(app).commands.values()
    }
    command_before = re.compile(rf"xcal ({'|'.join(options)})\b")
    package, seen, wrong = Path(xcal.__file__).parent, 0, []
    for path in sorted(set(package.rglob("*.py")) - set((package / "show").iterdir())):
        file = path.relative_to(package).as_posix()
        shown_by = next((commands for start, commands in SAID_BY.items() if file.startswith(start)), None)
        for text in texts(path):
            for found in re.finditer(r"(?<![\w-])--[a-z][a-z-]+", text):
                option, before = found.group(), re.split(r"[.;]\s|\n\n", text[: found.start()])[-1]
                # The name of an argument alone stands before an error of the command that was given it.
                if text == option or option in ("--help", "--version") or re.search("python -m|torchrun", before):
                    continue
                named = command_before.findall(before)
                some = (named[-1],) if named else ELSEWHERE.get((file, option), shown_by)
                # A file of all commands, such as this one of shared options: the option is that of some.
                have = [option in options[name] for name in some or options]
                seen += 1
                if not (any(have) if some is None else all(have)):
                    wrong.append((file, option, text))
    assert not wrong, "\n".join(map(repr, wrong))
    assert seen > 100


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
