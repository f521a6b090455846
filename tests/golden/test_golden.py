"""What users see is as it was written down; see `record`."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

from tests.golden import record

NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def read(name):
    return json.loads((record.HERE / name).read_text())


def differences(expected, found, where="", *, rtol=1e-4, atol=1e-6):
    """Every place in which two structures differ by more than rounding; p-values count draws, and may move by a few."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        own = 5e-3 if any(str(name).endswith(("_p", "_p_corrected", "p_value")) for name in expected.values()) else atol
        return [
            d for key in expected for d in differences(expected[key], found[key], f"{where}.{key}", rtol=rtol, atol=own)
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [d for k, (one, other) in pairs for d in differences(one, other, f"{where}[{k}]", rtol=rtol, atol=atol)]
    if isinstance(expected, float | int) and isinstance(found, float | int):
        return [] if np.isclose(expected, found, rtol=rtol, atol=atol) else [f"{where}: {expected} -> {found}"]
    return [] if expected == found else [f"{where}: {expected!r} -> {found!r}"]


def words(text):
    return NUMBER.sub("#", text)


def numbers(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def test_public_names_and_how_they_are_called():
    assert differences(read("names.json"), record.public_names()) == []


@pytest.mark.parametrize("command", record.COMMANDS)
def test_help(command):
    assert record.help_of(command) == (record.HERE / "help" / f"{command or 'xcal'}.txt").read_text()


@pytest.fixture(scope="module")
def audited():
    return record.audited()


def test_an_audit_as_numbers(audited):
    assert differences(read("audit.json"), json.loads(json.dumps(record.shortened_audit(audited)))) == []


def test_an_audit_in_words(audited):
    expected, found = (record.HERE / "audit.txt").read_text(), f"{audited}\n{record.page_text(audited)}"
    assert words(found).splitlines() == words(expected).splitlines()
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=0.02, atol=0.011)


def test_models_that_were_saved_then():
    assert differences(read("predictions.json"), record.predictions(record.HERE / "models"), rtol=1e-4) == []


def test_a_model_that_is_read_and_written_again_is_the_same_file(tmp_path):
    import xcal

    for path in sorted((record.HERE / "models").glob("*.safetensors")):
        xcal.load(path).save(tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="without vector instructions the initial weights differ in their last bit, and so does the run",
)
def test_a_training_that_was_stopped_then_goes_on(tmp_path):
    shutil.copytree(record.HERE / "checkpoint", tmp_path / "checkpoint")
    before = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    found = record.trained(tmp_path / "checkpoint")
    assert before <= {path.name for path in (tmp_path / "checkpoint").iterdir()}  # its own, not one beside it
    assert differences(read("training.json"), found, rtol=1e-3) == []


def test_records_of_a_small_table():
    # Two epochs with lambda 10 carry the rounding of another CPU's sums to the third digit.
    assert differences(read("records.json"), record.records(), rtol=1e-2) == []
