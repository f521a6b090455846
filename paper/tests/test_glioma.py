import csv
import lzma
import shutil
import struct

import numpy as np
import pytest

from xcal_paper import load_glioma
from xcal_paper.glioma import encode, pick_fields, read_string_frame, standardise, usable

FOLDER = "tcga_gbmlgg"


@pytest.fixture(scope="module")
def folder(real_data):
    return real_data(FOLDER)


@pytest.fixture(scope="module")
def data(folder):
    return load_glioma(split_seed=0, data_dir=folder)


@pytest.fixture(scope="module")
def records(folder):
    with (folder / FOLDER / "gbmlgg_picked_like.csv").open() as file:
        return list(csv.DictReader(file))


def whole(data, field):
    return np.concatenate([getattr(split, field) for split in data.splits.values()])


def test_counts_are_the_papers(data):
    assert [len(split) for split in data.splits.values()] == [552, 276, 277]
    assert len(whole(data, "time")) == 1105
    assert (~whole(data, "event")).sum() == 490


def test_times(data):
    time, event = whole(data, "time"), whole(data, "event")
    assert np.isfinite(time).all()
    assert (time >= 0).all()
    assert (time == 0).sum() == 3
    assert not event[time == 0].any()
    assert np.median(time) == 482
    assert time.max() == 6423


def test_who_is_left_out(records):
    kept = {row["bcr_patient_barcode"] for row in usable(records)}
    left_out = {row["bcr_patient_barcode"] for row in records} - kept
    assert left_out == {"tcga-16-0861", "tcga-28-2499", "tcga-06-0877", "tcga-cs-5390", "tcga-tq-a7rs"}


def test_features(data):
    assert len(data.feature_names) == len(set(data.feature_names)) == data.train.x.shape[1] == 26
    x = whole(data, "x")
    assert np.isfinite(x).all()
    assert np.abs(x).max() == 5
    fields = {name.split("=")[0] for name in data.feature_names}
    assert fields == {
        "tumor_tissue_site",
        "date_of_initial_pathologic_diagnosis",
        "radiation_therapy",
        "karnofsky_performance_score",
        "histological_type",
        "years_to_birth",
        "gender",
        "race",
        "ethnicity",
    }


def test_missing_values_are_levels(records):
    names, values = encode(usable(records))
    missing = {name: int(values[:, i].sum()) for i, name in enumerate(names) if name.endswith("=missing")}
    assert missing == {
        "years_to_birth=missing": 1,
        "karnofsky_performance_score=missing": 358,
        "radiation_therapy=missing": 60,
        "race=missing": 35,
        "ethnicity=missing": 124,
    }


@pytest.mark.parametrize("seed", range(5))
def test_standardised_by_the_training_rows_alone(folder, seed):
    data = load_glioma(split_seed=seed, data_dir=folder)
    x = data.train.x.astype(float)
    # Columns that the clamp did not touch, with no missing number: mean 0 and variance 1 on the training rows exactly.
    plain = (np.abs(x).max(axis=0) < 5) & ~np.isin(
        data.feature_names, ["years_to_birth", "karnofsky_performance_score"]
    )
    varying = plain & (x.std(axis=0) > 0)
    assert varying.sum() >= 15
    np.testing.assert_allclose(x[:, varying].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(x[:, varying].std(axis=0), 1, atol=1e-6)
    assert not np.allclose(data.test.x[:, varying].mean(axis=0), 0, atol=1e-3)


def test_standardise_by_hand():
    values = np.array([[1.0, 0.0, 0.0], [3.0, 0.0, np.nan], [100.0, 1.0, 4.0], [-100.0, 0.0, 8.0], [np.nan, 1.0, 0.0]])
    x = standardise(values, np.array([0, 1]))
    expected = [[-1, 0, 0], [1, 0, 0], [5, 0, 0], [-5, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(x, expected)
    # The second row's missing number counts neither in mean nor in scale.
    np.testing.assert_allclose(standardise(values, np.array([0, 1, 2]))[:, 2], [-1, 0, 1, 3, -1])


def test_split_seed_decides_the_split(folder, data):
    again, other = (load_glioma(split_seed=seed, data_dir=folder) for seed in (0, 1))
    np.testing.assert_array_equal(again.test.x, data.test.x)
    np.testing.assert_array_equal(again.test.time, data.test.time)
    assert not np.array_equal(np.sort(other.test.time), np.sort(data.test.time))
    np.testing.assert_array_equal(np.sort(whole(other, "time")), np.sort(whole(data, "time")))


def test_the_public_file_gives_the_same_rows(folder, data, tmp_path):
    (tmp_path / FOLDER).mkdir()
    shutil.copy(folder / FOLDER / "GBMLGG.clinical.20160128.rda", tmp_path / FOLDER)
    public = load_glioma(split_seed=0, data_dir=tmp_path)
    assert public.feature_names == data.feature_names
    for name, split in public.splits.items():
        np.testing.assert_array_equal(split.x, data.splits[name].x)
        np.testing.assert_array_equal(split.time, data.splits[name].time)
        np.testing.assert_array_equal(split.event, data.splits[name].event)


def test_bad_seed():
    with pytest.raises(ValueError, match="split_seed: expected an integer"):
        load_glioma(split_seed="0")


def char(text):
    if text is None:
        return struct.pack(">ii", 9, -1)
    return struct.pack(">ii", 0x40009, len(text.encode())) + text.encode()


def strings(values):
    return struct.pack(">ii", 16, len(values)) + b"".join(char(value) for value in values)


def r_file(frame):
    """An .rda file as R writes a data frame of strings."""
    head = b"RDX2\nX\n" + struct.pack(">iii", 2, 0x30301, 0x20300)
    pair = struct.pack(">i", 0x402)
    symbol = struct.pack(">i", 1)
    columns = struct.pack(">ii", 0x313, len(frame)) + b"".join(strings(values) for values in frame.values())
    attributes = pair + symbol + char("names") + strings(list(frame))
    attributes += pair + symbol + char("row.names") + struct.pack(">iiii", 13, 2, -(2**31), -2)
    attributes += pair + symbol + char("class") + strings(["data.frame"]) + struct.pack(">i", 254)
    return lzma.compress(head + pair + symbol + char("frame") + columns + attributes + struct.pack(">i", 254))


def test_r_file():
    frame = read_string_frame("a file", r_file({"a": ["x", None], "b": ["", "é"]}))
    assert frame == {"a": ["x", ""], "b": ["", "é"]}


@pytest.mark.parametrize(
    "content",
    [b"", b"not xz", lzma.compress(b"RDX3\nX\n"), lzma.compress(b"RDX2\nX\n" + bytes(40))],
    ids=["empty", "not xz", "other version", "other content"],
)
def test_r_file_refused(content):
    with pytest.raises(ValueError, match="a file: expected an R data file"):
        read_string_frame("a file", content)


def test_picking_from_forms():
    first, second = "patient.follow_ups.follow_up", "patient.follow_ups.follow_up-2"
    frame = {
        "patient.bcr_patient_barcode": ["b", "a"],
        **{f"patient.{key}": ["", ""] for key in ("tumor_tissue_site", "gender", "histological_type", "ethnicity")},
        "patient.year_of_initial_pathologic_diagnosis": ["2000", "2001"],
        "patient.race_list.race": [None, "white"],
        "patient.days_to_birth": ["-366", None],
        "patient.vital_status": ["alive", "alive"],
        "patient.days_to_last_followup": ["99", "5"],
        "patient.radiation_therapy": ["no", None],
        "patient.year_of_form_completion": ["2010", "2010"],
        f"{first}.vital_status": ["alive", "dead"],
        f"{first}.days_to_last_followup": ["100", None],
        f"{first}.days_to_death": [None, "7"],
        f"{first}.radiation_therapy": ["yes", None],
        f"{first}.year_of_form_completion": ["2011", None],
        f"{second}.radiation_therapy": ["unknown", None],
        f"{second}.year_of_form_completion": ["2009", None],
    }
    one, two = pick_fields("a file", r_file(frame))
    assert (one["bcr_patient_barcode"], one["vital_status"], one["time"]) == ("a", "1", "7")
    assert (one["years_to_birth"], one["race"], one["radiation_therapy"]) == ("", "white", "")
    assert (two["vital_status"], two["time"]) == ("0", "100")  # the largest as a number, not as text
    assert (two["years_to_birth"], two["radiation_therapy"]) == ("1", "yes")  # the latest form, not the last
