"""Random mutants of one folder of the package, and which of them its tests notice.

``python -m tests.mutants --folder metrics --mutants 40 --seed 0``

Each mutant changes one place of a copy of the package: a comparison, an operator, a number, ``and`` for ``or``, a
condition, the sign of a returned value. The tests of the folder run once on the unchanged copy, which tells which of
them reach which line; for a mutant those come first, the quick ones before the slow ones, then the others until one
fails. Tests that fail on the unchanged copy (a package is missing) are named and left out. Docstrings, annotations,
error messages and decorators are left alone. A survivor changes nothing (then it is equivalent), or changes a result
that no test holds: such a one needs a law or an outside reference. Several folders, on many cores, resumed by the same
command after it was cut short:

``python -m tests.mutants --folder calibration metrics --reaching --processes 16 --record runs/mutants.jsonl``
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
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
# Arguments that change no result: checks of what is known, copies, how things are printed and compared.
NO_RESULT = {"strict", "copy", "repr", "compare", "stacklevel"}
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
                if isinstance(child, ast.keyword) and child.arg in NO_RESULT:
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


class Copy:
    """A copy of the package and its tests in a temporary place, in which one run of pytest goes on at a time."""

    def __init__(self, place: Path) -> None:
        self.place = place
        ignore = shutil.ignore_patterns("__pycache__")
        for name in ("src", "tests", "benchmarks", "studies"):
            shutil.copytree(ROOT / name, place / name, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", place)

    def run(
        self, tests: list[str], *options: str, limit: float, first: list[str], without: list[str]
    ) -> tuple[int | None, float]:
        """Run pytest and return its exit status (None: it took too long) and the seconds that it took."""
        (self.place / "order.json").write_text(json.dumps([first, without]))
        paths = [str(self.place / "src"), str(self.place), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "XCAL_DATA": os.environ.get("XCAL_DATA") or str(ROOT.parent / "shared" / "data"),
            "CI": "1",  # the same examples of hypothesis for every mutant
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants"]
        start = time.monotonic()
        with subprocess.Popen(
            [*command, *options, *tests],
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


class Tests:
    """The tests of one folder: which of them reach which line, how long each takes, which fail without a change."""

    def __init__(self, folder: str, also: list[str], mark: str | None) -> None:
        self.folder, self.options = folder, ("-m", mark) if mark else ()
        if not (ROOT / "tests" / folder).exists():
            raise SystemExit(f"no tests/{folder}: the folders are {', '.join(FOLDERS)}")
        found = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))]
        self.files = [*found, f"src/xcal/{folder}", *also]  # the package itself: its doctests
        self.reached: dict[str, dict[str, list[str]]] = {}
        self.seconds: dict[str, float] = {}
        self.failing: list[str] = []

    def measure(self, copy: Copy, file: str, limit: float) -> dict:
        """Run one file of tests unchanged, and return what it showed."""
        from coverage import CoverageData

        shown: dict = {"removed": False, "failing": [], "seconds": {}, "reached": {}}

        place = copy.place
        package = place / "src" / "xcal" / self.folder
        options = (f"--cov={package}", "--cov-context=test", "--cov-report=", "--durations=0", "-vv")
        status, _ = copy.run([file], *options, *self.options, limit=limit, first=[], without=[])
        shown["removed"] = status in (None, 2)  # it cannot be read here (a package is missing), or takes too long
        if status not in (0, 5):
            lines = copy.said.splitlines()
            failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))]
            shown["failing"] = [line.split(" ", 1)[1] for line in failed] or [file]
        for line in copy.said.splitlines():
            words = line.split(maxsplit=2)
            if len(words) == 3 and words[1] in ("call", "setup") and words[0].endswith("s"):
                shown["seconds"][words[2]] = shown["seconds"].get(words[2], 0.0) + float(words[0][:-1])
        data = CoverageData(str(place / ".coverage"))
        data.read()
        for path in data.measured_files():
            lines_reached = {
                str(line): [name for name in names if name] for line, names in data.contexts_by_lineno(path).items()
            }
            shown["reached"][str(Path(path).relative_to(place))] = lines_reached
        data.erase()
        return shown

    def know(self, file: str, shown: dict) -> None:
        """Keep what a file of tests showed."""
        if shown["removed"]:
            self.files.remove(file)
        self.failing += shown["failing"]
        for name, seconds in shown["seconds"].items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        for path, by_line in shown["reached"].items():
            lines_reached = self.reached.setdefault(path, {})
            for line, names in by_line.items():
                lines_reached.setdefault(line, []).extend(names)

    def first(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant, quick ones first; of a shared fixture, all tests of that file."""
        names = self.reached.get(str(mutant.file.relative_to(ROOT)), {}).get(str(mutant.line), [])
        tests = {name.rpartition("|")[0] for name in names}
        tests |= {name.partition("::")[0] + "::" for name in names if name.endswith("|setup")}
        return sorted(tests, key=lambda test: (test.endswith("::"), self.seconds.get(test, 0.0)))

    def killed(self, copy: Copy, mutant: Mutant, *, reaching: bool) -> str | None:
        """Return how a mutant was noticed, or None."""
        changed = copy.place / mutant.file.relative_to(ROOT)
        first = self.first(mutant)
        few = reaching and first
        files = sorted({test.partition("::")[0] for test in first}) if few else self.files
        known = [self.seconds.get(test, 0.0) for test in first] if few else self.seconds.values()
        whole = any(test.endswith("::") for test in first)
        limit = 2 * (sum(self.seconds.values()) if whole else sum(known)) + 60
        changed.write_text(mutant.text)
        try:
            options = ("-x", *(("--reaching",) if few else ()), *self.options)
            status, _ = copy.run(files, *options, limit=limit, first=first, without=self.failing)
        finally:
            shutil.copy(mutant.file, changed)
        if status in (0, 5):  # 5: no test is left that reaches it
            return None
        if status is None:
            return "too slow"
        failed = [line for line in copy.said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0][:150] if failed else f"pytest ended with {status}"


class Record:
    """What earlier runs of the same code found: JSON lines, each with a key, and a digest of package and tests."""

    def __init__(self, file: str | None) -> None:
        self.file = Path(file) if file else None
        self.lock = threading.Lock()
        paths = sorted(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))
        self.code = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]
        lines = self.file.read_text().splitlines() if self.file and self.file.exists() else []
        found = [json.loads(line) for line in lines]
        self.known = {tuple(one["key"]): one["value"] for one in found if one["code"] == self.code}

    def get(self, key: tuple, make: Callable[[], object]) -> object:
        """Return what is known under a key, or make it and keep it."""
        if key not in self.known:
            made = make()
            with self.lock:
                self.known[key] = made
                if self.file:
                    self.file.parent.mkdir(parents=True, exist_ok=True)
                    with self.file.open("a") as out:
                        out.write(json.dumps({"code": self.code, "key": key, "value": made}) + "\n")
        return self.known[key]


def in_each(copies: list[Copy], tasks: list[tuple], until: float) -> None:
    """Do tasks, each in the next copy that is free, in their order; after a time start no more."""
    waiting = iter(tasks)
    lock = threading.Lock()

    def work(copy: Copy) -> None:
        while time.monotonic() < until:
            with lock:
                task = next(waiting, None)
            if task is None:
                return
            task[0](copy, *task[1:])

    with ThreadPoolExecutor(len(copies)) as threads:
        for done in [threads.submit(work, copy) for copy in copies]:
            done.result()


def pytest_addoption(parser):
    """``--reaching``: only the tests that reach the mutant."""
    parser.addoption("--reaching", action="store_true")


def pytest_collection_modifyitems(config, items):
    """Put the tests first that reach the mutant (this file is a plugin of the runs that it starts)."""
    first, without = json.loads(Path("order.json").read_text())
    items[:] = [item for item in items if item.nodeid not in without]
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
    parser.add_argument("--folder", nargs="+", required=True, help=f"folders of src/xcal: {', '.join(FOLDERS)}")
    parser.add_argument("--mutants", type=int, default=40, help="of each folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", metavar="FILE:LINE", action="append", help="instead: every mutant of this line")
    parser.add_argument("--also", nargs="*", default=[], help="other tests to run beside those of the folder")
    parser.add_argument("--mark", help="only tests with this expression of markers, such as 'not ci'")
    parser.add_argument(
        "--reaching", action="store_true", help="run only the tests that reach the line: quicker, and misses few"
    )
    parser.add_argument("--processes", type=int, default=1, help="mutants at a time, each in a copy of its own")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for one file of tests without a change")
    parser.add_argument("--record", metavar="FILE", help="keep what is found, and resume from it while no code changes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no mutant after so many seconds")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    counts = {folder: [0, 0] for folder in options.folder}
    lock = threading.Lock()
    record = Record(options.record)
    chosen = (options.mark, options.reaching, *options.also)

    def try_one(copy: Copy, tests: Tests, mutant: Mutant) -> None:
        where = mutant.file.relative_to(ROOT / "src" / "xcal")
        key = ("mutant", hashlib.sha256(mutant.text.encode()).hexdigest()[:12], str(where), mutant.line, *chosen)
        how = record.get(key, lambda: tests.killed(copy, mutant, reaching=options.reaching))
        with lock:
            counts[tests.folder][how is not None] += 1
            print(f"{'killed  ' if how else 'SURVIVED'} {where}:{mutant.line}: {mutant.before}  ->  {mutant.after}")
            if how:
                print(f"         by {how}")
            sys.stdout.flush()

    def measure(copy: Copy, tests: Tests, file: str) -> None:
        shown = record.get(
            ("tests", file, tests.folder, options.mark), lambda: tests.measure(copy, file, options.limit)
        )
        with lock:
            tests.know(file, shown)

    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copies = [Copy(Path(place).resolve() / str(i)) for i in range(options.processes)]
        folders = [Tests(folder, options.also, options.mark) for folder in options.folder]
        in_each(copies, [(measure, tests, file) for tests in folders for file in tests.files], float("inf"))
        waves = []
        for tests in folders:
            took = sum(tests.seconds.values())
            print(f"{tests.folder}: {len(tests.files)} files of tests, {took:.0f} s without a change", flush=True)
            for name in tests.failing:
                print(f"{tests.folder}: left out, as it fails without a change: {name}", flush=True)
            package = ROOT / "src" / "xcal" / tests.folder
            if options.at:
                lines = [at.split(":") for at in options.at]
                mutants = [one for file, line in lines for one in named(package, file, int(line))]
            else:
                mutants = draw(package, options.mutants, random.Random(options.seed))
            waves.append([(try_one, tests, mutant) for mutant in mutants])
        # In turn from each folder, so that a run that ends early has seen as much of every folder.
        in_each(copies, [task for wave in zip_longest(*waves) for task in wave if task], until)
    for folder, (alive, dead) in counts.items():
        print(f"{folder}: {dead} of {alive + dead} mutants killed ({dead / max(alive + dead, 1):.0%})")


if __name__ == "__main__":
    main()
