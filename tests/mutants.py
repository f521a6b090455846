"""Random mutants of one folder of the package, and which of them its tests notice.

``python -m tests.mutants --folder metrics --mutants 40 --seed 0``

Each mutant changes one place of a copy of the package: a comparison, an operator, a number, ``and`` for ``or``, a
condition, the sign of a returned value. The tests of the folder run once on the unchanged copy, which tells which of
them reach which line; for a mutant those come first, the quick ones before the slow ones, then the others until one
fails. Docstrings, annotations, error messages and decorators are left alone. A survivor changes nothing (then it is
equivalent), or changes a result that no test holds: such a one needs a law or an outside reference.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("recalibration", "calibration", "metrics", "validation")
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OPERATORS = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.MatMult: (),
}
NEGATED = (ast.Name, ast.Call, ast.BinOp, ast.Attribute, ast.Subscript)


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the line, the words before and after, and the whole new text."""

    file: Path
    line: int
    before: str
    after: str
    text: str


def on_gpu(function: ast.FunctionDef) -> bool:
    """Whether a function runs on a GPU only: a part of it stands in ``with torch.cuda.device(...)`` or the like."""
    withs = (node for node in ast.walk(function) if isinstance(node, ast.With))
    return any(ast.unparse(item.context_expr).startswith("torch.cuda.") for one in withs for item in one.items)


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed: code that computes where tests run, and no text."""

    def inside(node: ast.AST) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment", "bases", "slice_type"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.JoinedStr | ast.Import):
                    continue
                if isinstance(child, ast.FunctionDef) and on_gpu(child):
                    continue
                if isinstance(child, ast.Call) and ast.unparse(child.func) in ("warnings.warn", "cast", "TypeVar"):
                    continue
                yield child
                yield from inside(child)

    return inside(tree)


def changes(node: ast.AST) -> list[ast.AST]:
    """Return what a node may become."""
    made: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[i] = other()
                made.append(changed)
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        for other in OPERATORS.get(type(node.op), ()):
            changed = copy.deepcopy(node)
            changed.op = other()
            made.append(changed)
    elif isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        made.append(changed)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        made.append(node.operand)
    elif isinstance(node, ast.IfExp):
        made.append(ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))
    elif isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare | ast.BoolOp):
        changed = copy.copy(node)
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        made.append(changed)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        made.append(ast.Constant(not node.value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        made.append(ast.Constant(node.value + 1))
        if node.value:
            made.append(ast.Constant(type(node.value)(0)))
    elif isinstance(node, ast.Return) and isinstance(node.value, NEGATED):
        made.append(ast.Return(ast.UnaryOp(ast.USub(), node.value)))
    return made


class _Put(ast.NodeTransformer):
    """Put one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().generic_visit(node)


def draw(folder: Path, count: int, order: random.Random) -> list[Mutant]:
    """Draw mutants without repetition, each place with the same chance."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text()
        found += [(file, text, i) for i, node in enumerate(places(ast.parse(text))) if changes(node)]
    drawn = []
    for file, text, i in order.sample(found, min(count, len(found))):
        tree = ast.parse(text)
        node = list(places(tree))[i]
        new = order.choice(changes(node))
        before, after = ast.unparse(node).split("\n")[0], ast.unparse(new).split("\n")[0]
        mutated = ast.unparse(ast.fix_missing_locations(_Put(node, new).visit(tree)))
        drawn.append(Mutant(file, node.lineno, before, after, mutated))
    return drawn


def named(folder: Path, file: str, line: int) -> list[Mutant]:
    """Return every mutant of one line."""
    path = folder / file
    text = path.read_text()
    made = []
    for i, node in enumerate(places(ast.parse(text))):
        if getattr(node, "lineno", 0) == line:
            for k in range(len(changes(node))):
                tree = ast.parse(text)
                old = list(places(tree))[i]
                new = changes(old)[k]
                before, after = ast.unparse(old).split("\n")[0], ast.unparse(new).split("\n")[0]
                mutated = ast.unparse(ast.fix_missing_locations(_Put(old, new).visit(tree)))
                made.append(Mutant(path, line, before, after, mutated))
    return made


class Tests:
    """The tests of one folder, on a copy of the package in a temporary place."""

    def __init__(self, place: Path, folder: str, also: list[str]) -> None:
        self.place, self.package = place, place / "src" / "xcal" / folder
        ignore = shutil.ignore_patterns("__pycache__")
        for name in ("src", "tests", "benchmarks", "studies"):
            shutil.copytree(ROOT / name, place / name, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", place)
        self.chosen = [f"tests/{folder}", *also]
        if not (place / "tests" / folder).exists():
            raise SystemExit(f"no tests/{folder}: the folders are {', '.join(FOLDERS)}")
        self.reached: dict[str, dict[str, list[str]]] = {}
        self.seconds: dict[str, float] = {}

    def run(self, *options: str, limit: float, first: list[str] | None = None) -> tuple[int | None, float]:
        """Run pytest and return its exit status (None: it took too long) and the seconds that it took."""
        (self.place / "first.json").write_text(json.dumps(first or []))
        environment = os.environ | {
            "PYTHONPATH": f"{self.place / 'src'}{os.pathsep}{self.place}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "XCAL_DATA": os.environ.get("XCAL_DATA") or str(ROOT.parent / "shared" / "data"),
            "CI": "1",  # the same examples of hypothesis for every mutant
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        start = time.monotonic()
        with subprocess.Popen(
            [*command, "-p", "tests.mutants", *options, *self.chosen],
            cwd=self.place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            try:
                self.said, _ = running.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                running.kill()
                return None, time.monotonic() - start
        return running.returncode, time.monotonic() - start

    def measure(self, limit: float) -> None:
        """Run the tests unchanged; keep which of them reach each line, and how long each takes."""
        from coverage import CoverageData

        options = (f"--cov={self.package}", "--cov-context=test", "--cov-report=", "--durations=0", "-vv")
        status, self.whole = self.run(*options, limit=limit)
        if status != 0:
            raise SystemExit(f"the tests fail, or take too long, without any change:\n{self.said[-3000:]}")
        for line in self.said.splitlines():
            words = line.split()
            if len(words) >= 3 and words[1] in ("call", "setup") and words[0].endswith("s"):
                self.seconds[words[2]] = self.seconds.get(words[2], 0.0) + float(words[0][:-1])
        data = CoverageData(str(self.place / ".coverage"))
        data.read()
        for file in data.measured_files():
            lines = data.contexts_by_lineno(file)
            self.reached[file] = {str(line): [name for name in names if name] for line, names in lines.items()}

    def first(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant, quick ones first; of a shared fixture, all tests of that file."""
        names = self.reached.get(str(mutant.file), {}).get(str(mutant.line), [])
        tests = {name.rpartition("|")[0] for name in names}
        tests |= {name.partition("::")[0] + "::" for name in names if name.endswith("|setup")}
        return sorted(tests, key=lambda test: (test.endswith("::"), self.seconds.get(test, 0.0)))

    def killed(self, mutant: Mutant, limit: float, *, reaching: bool) -> str | None:
        """Return how a mutant was noticed, or None."""
        kept = mutant.file.read_text()
        first = self.first(mutant)
        mutant.file.write_text(mutant.text)
        try:
            options = ("--reaching",) if reaching and first else ()
            status, _ = self.run(*options, limit=limit, first=first)
        finally:
            mutant.file.write_text(kept)
        if status == 0:
            return None
        if status is None:
            return "too slow"
        failed = [line for line in self.said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0][:150] if failed else f"pytest ended with {status}"


def pytest_addoption(parser):
    """``--reaching``: only the tests that reach the mutant."""
    parser.addoption("--reaching", action="store_true")


def pytest_collection_modifyitems(config, items):
    """Put the tests first that reach the mutant (this file is a plugin of the runs that it starts)."""
    first = json.loads(Path("first.json").read_text())
    place = {name: i for i, name in enumerate(first)}
    late = len(place)

    def rank(item):
        whole_file = place.get(item.nodeid.partition("::")[0] + "::", late)
        return min(place.get(item.nodeid, late), whole_file)

    items.sort(key=rank)
    if config.getoption("--reaching"):
        items[:] = [item for item in items if rank(item) < late]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help=f"a folder of src/xcal with tests: {', '.join(FOLDERS)}")
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", metavar="FILE:LINE", action="append", help="instead: every mutant of this line")
    parser.add_argument("--also", nargs="*", default=[], help="other tests to run beside those of the folder")
    parser.add_argument(
        "--reaching", action="store_true", help="run only the tests that reach the line: quicker, and misses few"
    )
    parser.add_argument("--limit", type=float, default=1200, help="seconds for the tests without a change")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        tests = Tests(Path(place).resolve(), options.folder, options.also)
        tests.measure(options.limit)
        print(f"{options.folder}: tests without a change took {tests.whole:.0f} s", flush=True)
        if options.at:
            places = [at.split(":") for at in options.at]
            mutants = [one for file, line in places for one in named(tests.package, file, int(line))]
        else:
            mutants = draw(tests.package, options.mutants, random.Random(options.seed))
        dead = 0
        for mutant in mutants:
            how = tests.killed(mutant, 2 * tests.whole + 60, reaching=options.reaching)
            dead += how is not None
            where = f"{mutant.file.relative_to(tests.package)}:{mutant.line}"
            print(f"{'killed  ' if how else 'SURVIVED'} {where}: {mutant.before}  ->  {mutant.after}", flush=True)
            if how:
                print(f"         by {how}", flush=True)
        print(f"{options.folder}: {dead} of {len(mutants)} mutants killed ({dead / max(len(mutants), 1):.0%})")


if __name__ == "__main__":
    main()
