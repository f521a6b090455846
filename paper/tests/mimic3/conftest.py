"""The open demo of MIMIC-III, where it is, and small made-up folders of the same shape."""

import csv
import gzip
import json
import shutil

import pytest

from xcal_paper.mimic3 import generate, prepare


@pytest.fixture(scope="session")
def demo_files(real_data):
    """Folder with demo/, demo_expected/ and benchmark_resources/."""
    return real_data("mimic3") / "mimic3"


@pytest.fixture(scope="session")
def demo_test_list(demo_files, tmp_path_factory):
    """The benchmark's test subjects among those of the demo, in the benchmark's form."""
    path = tmp_path_factory.mktemp("demo-list") / "testset.csv"
    with (demo_files / "demo_expected" / "demo_split.csv").open() as file:
        path.write_text("".join(f"{row['subject_id']},{row['test']}\n" for row in csv.DictReader(file)))
    return path


@pytest.fixture(scope="session")
def demo(demo_files, demo_test_list, tmp_path_factory):
    """The prepared demo, with everything."""
    out = tmp_path_factory.mktemp("demo") / "los"
    return prepare(demo_files / "demo", out, test_subjects=demo_test_list, discretised=True, threads=2)


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """A raw folder of eight made-up subjects."""
    folder = tmp_path_factory.mktemp("made-up") / "raw"
    generate(folder, scale=0.08, seed=5)
    return folder


@pytest.fixture
def raw(made_up, tmp_path):
    """A copy of the made-up folder, for a test to spoil."""
    return shutil.copytree(made_up, tmp_path / "raw")


def lines_of(folder, table):
    """Lines of a raw table, the header first."""
    with gzip.open(folder / f"{table}.csv.gz", "rt") as file:
        return file.read().splitlines()


def write_lines(folder, table, lines):
    """Replace a raw table."""
    with gzip.open(folder / f"{table}.csv.gz", "wt") as file:
        file.write("".join(f"{line}\n" for line in lines))


def manifest_of(folder):
    """The manifest of a prepared folder."""
    return json.loads((folder / "manifest.json").read_text())
