import hashlib
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from xcal import datasets as files
from xcal.datasets import DataFile, data_directory, load_metabric, load_support, read_file
from xcal_paper import load_glioma, load_survival_mnist
from xcal_paper.glioma import GLIOMA_MERGED, GLIOMA_PICKED
from xcal_paper.simulated import MNIST

CONTENT = b"the right content"
FILE = DataFile(
    "folder/a.bin",
    hashlib.sha256(CONTENT).hexdigest(),
    len(CONTENT),
    ("https://one.example/a.bin", "https://two.example/a.bin"),
)
LOADERS = {
    "mnist": lambda root: load_survival_mnist(censored=True, seed=0, data_dir=root),
    "glioma": lambda root: load_glioma(split_seed=0, data_dir=root),
    "metabric": load_metabric,
    "support": load_support,
}
FIRST = {
    "mnist": "mnist/train-images-idx3-ubyte.gz",
    "glioma": "tcga_gbmlgg/gbmlgg_picked_like.csv",
    "metabric": "benchmarks/metabric_deepsurv.csv",
    "support": "benchmarks/support_deepsurv.csv",
}


def put(root, content):
    path = root / FILE.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class Pooch(types.ModuleType):
    """Stands for pooch: gives each address's content, or raises what the network would."""

    def __init__(self, answers):
        super().__init__("pooch")
        self.answers = answers
        self.asked = []

    def retrieve(self, url, known_hash, fname, path):
        self.asked.append(url)
        answer = self.answers[url]
        if isinstance(answer, Exception):
            raise answer
        target = Path(path) / fname
        target.write_bytes(answer)
        assert known_hash == f"sha256:{FILE.sha256}"
        return str(target)


@pytest.fixture
def pooch(monkeypatch):
    def install(*answers):
        stand_in = Pooch(dict(zip(FILE.urls, answers, strict=False)))
        monkeypatch.setitem(sys.modules, "pooch", stand_in)
        return stand_in

    return install


def test_order_of_directories(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("XCAL_DATA", "")
    assert data_directory() == tmp_path / ".cache" / "xcal"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_directory() == tmp_path / ".cache" / "xcal"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_directory() == tmp_path / "cache" / "xcal"
    monkeypatch.setenv("XCAL_DATA", "~/mine")
    assert data_directory() == tmp_path / "mine"
    assert data_directory("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("XCAL_DATA")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_directory() == tmp_path / "Library" / "Caches" / "xcal"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert data_directory() == tmp_path / "local" / "xcal"


def test_directory_must_be_a_path():
    with pytest.raises(ValueError, match="data_dir: expected a path, got 3"):
        data_directory(3)


def test_right_file_is_read(tmp_path):
    put(tmp_path, CONTENT)
    assert read_file(FILE, data_dir=tmp_path) == (FILE, CONTENT)


def test_environment_variable_is_used(tmp_path, monkeypatch):
    put(tmp_path, CONTENT)
    monkeypatch.setenv("XCAL_DATA", str(tmp_path))
    assert read_file(FILE)[1] == CONTENT


@pytest.mark.parametrize(
    ("content", "kind"), [(CONTENT[:-1], "truncated"), (b"the wrong content", "wrong"), (b"", "truncated")]
)
def test_wrong_file_is_named_and_kept(tmp_path, pooch, content, kind):
    stand_in = pooch(CONTENT)
    path = put(tmp_path, content)
    with pytest.raises(ValueError, match=r"^data_dir: expected ") as error:
        read_file(FILE, data_dir=tmp_path)
    message = str(error.value)
    assert f"{path} with {len(CONTENT)} bytes, sha256 {FILE.sha256}" in message
    assert f"a {kind} file with {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}" in message
    assert "\n" not in message
    assert path.read_bytes() == content
    assert stand_in.asked == []


def test_a_folder_in_the_files_place(tmp_path):
    (tmp_path / FILE.path).mkdir(parents=True)
    with pytest.raises(ValueError, match=r"data_dir: expected a readable file .*a\.bin, got IsADirectoryError"):
        read_file(FILE, data_dir=tmp_path)


@pytest.mark.parametrize("name", LOADERS)
def test_missing_file_without_pooch(name, tmp_path):
    with pytest.raises(ValueError, match=r"^data_dir: expected the file ") as error:
        LOADERS[name](tmp_path)
    message = str(error.value)
    assert str(tmp_path / FIRST[name]) in message
    assert "https://" in message
    assert "got no such file, and the package pooch, which would fetch it, is not installed" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", LOADERS)
def test_truncated_real_file(name, tmp_path, real_data):
    source = real_data(Path(FIRST[name]).parent) / FIRST[name]
    shutil.copytree(source.parent, tmp_path / source.parent.name)
    path = tmp_path / FIRST[name]
    path.chmod(0o644)
    content = source.read_bytes()[:-100]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path.name} with {len(content) + 100} bytes, .* got a truncated file"):
        LOADERS[name](tmp_path)
    assert path.read_bytes() == content


def test_registry_is_right(real_data):
    known = [*MNIST.values(), GLIOMA_PICKED, GLIOMA_MERGED, files.METABRIC_CSV, files.SUPPORT_CSV]
    for file in known:
        root = real_data(Path(file.path).parent)
        assert len(read_file(file, data_dir=root)[1]) == file.size


def test_absent_file_is_fetched_once(tmp_path, pooch):
    stand_in = pooch(CONTENT)
    for _ in range(2):
        assert read_file(FILE, data_dir=tmp_path / "new")[1] == CONTENT
    assert stand_in.asked == [FILE.urls[0]]
    assert os.listdir(tmp_path / "new" / "folder") == ["a.bin"]


@pytest.mark.parametrize("answer", [OSError("no network"), ValueError("SHA256 hash does not match"), b"wrong"])
def test_second_address_is_tried(tmp_path, pooch, answer):
    stand_in = pooch(answer, CONTENT)
    assert read_file(FILE, data_dir=tmp_path)[1] == CONTENT
    assert stand_in.asked == list(FILE.urls)


def test_failed_fetch_leaves_nothing(tmp_path, pooch):
    pooch(ConnectionError("no\nnetwork"), b"half a fi")
    with pytest.raises(ValueError, match=r"^data_dir: expected the file ") as error:
        read_file(FILE, data_dir=tmp_path)
    message = str(error.value)
    assert "fetching it failed (https://one.example/a.bin: ConnectionError: no network; https://two" in message
    assert str(tmp_path / FILE.path) in message
    assert "\n" not in message
    assert os.listdir(tmp_path / "folder") == []


def test_full_disk_while_fetching(tmp_path, pooch):
    other = put(tmp_path, b"an earlier file").rename(tmp_path / "folder" / "earlier.bin")
    full = OSError(28, "No space left on device")
    pooch(full, full)
    with pytest.raises(ValueError, match="No space left on device"):
        read_file(FILE, data_dir=tmp_path)
    assert other.read_bytes() == b"an earlier file"
    assert os.listdir(tmp_path / "folder") == ["earlier.bin"]


def test_unwritable_directory(tmp_path, pooch):
    # A plain file in the folder's place: refuses everyone, the superuser of a container too.
    (tmp_path / "folder").write_text("in the way")
    stand_in = pooch(CONTENT)
    with pytest.raises(ValueError, match=r"data_dir: expected a folder that can be written, to keep .*a\.bin, got "):
        read_file(FILE, data_dir=tmp_path)
    assert stand_in.asked == []


def test_read_only_directory(tmp_path, pooch, monkeypatch):
    # The superuser may write anywhere, so the refusal is put in by hand.
    def refuse(**kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "TemporaryDirectory", refuse)
    pooch(CONTENT)
    with pytest.raises(ValueError, match=r"expected a folder that can be written.*Permission denied"):
        read_file(FILE, data_dir=tmp_path)


def test_another_form_of_the_same_data_will_do(tmp_path):
    put(tmp_path, CONTENT)
    absent = DataFile("folder/b.csv", "0" * 64, 1, origin="nowhere")
    assert read_file(absent, FILE, data_dir=tmp_path) == (FILE, CONTENT)


def test_package_missing_for_the_public_form(tmp_path, pooch, monkeypatch):
    pooch(CONTENT)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ValueError, match="no such file, and reading what could be fetched needs h5py"):
        load_metabric(tmp_path)


@pytest.mark.ci
def test_importing_costs_nothing():
    heavy = ["pandas", "pooch", "h5py", "scipy.stats", "requests"]
    code = f"import sys, xcal.datasets; print([name for name in {heavy!r} if name in sys.modules])"
    environment = {**os.environ, "XCAL_DATA": "/nonexistent"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "[]"
