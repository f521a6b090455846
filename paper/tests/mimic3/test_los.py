"""`load_mimic_los`: prepared folders as rows that stay in a file."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from xcal.data.features import MappedFeatures
from xcal.distributions import family, quantile_edges
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path
from xcal_paper import load_mimic_los
from xcal_paper.mimic3 import data_source, feature_names, prepare, read_manifest


@pytest.fixture(scope="module")
def prepared(made_up, tmp_path_factory):
    """A prepared folder of made-up subjects."""
    return prepare(made_up, tmp_path_factory.mktemp("los") / "out", threads=1).folder


@pytest.fixture
def copy(prepared, tmp_path):
    """A copy of it that was never loaded, for a test to spoil."""
    return shutil.copytree(prepared, tmp_path / "copy", ignore=shutil.ignore_patterns("training"))


def stored(folder, split):
    """Table of a split as it stands in the parquet files, as pandas."""
    files = sorted((folder / "features" / f"split={split}").glob("*.parquet"))
    return pq.read_table(files[0]).to_pandas() if len(files) == 1 else None


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_rows_are_those_of_the_parquet_files(prepared, split):
    table, data = stored(prepared, split), load_mimic_los(prepared).splits[split]
    statistics = table[list(feature_names())].to_numpy()
    masks = table[[f"{name}.defined" for name in feature_names()]].to_numpy()
    x = data.x[:]
    np.testing.assert_array_equal(x[:, :714], np.nan_to_num(statistics))
    # The masks that the file has, which are not read: they follow from what is missing.
    np.testing.assert_array_equal(x[:, 714:], masks)
    assert x.dtype == np.float32
    assert data.feature_names == feature_names(masks=True)
    np.testing.assert_array_equal(data.time, table["remaining"])
    np.testing.assert_array_equal(data.event, table["event"])
    np.testing.assert_array_equal(data.groups, table["subject_id"])
    np.testing.assert_array_equal(data.extra["period_length"], table["period_length"])
    assert data.time_unit == "hours"


def test_no_subject_is_in_two_splits(prepared):
    data = load_mimic_los(prepared)
    subjects = [set(split.groups.tolist()) for split in data.splits.values()]
    assert sum(map(len, subjects)) == len(set.union(*subjects))


def test_neighbouring_rows_mix_stays(prepared):
    stay = load_mimic_los(prepared).train.extra["stay_id"]
    alike = np.mean(stay[1:] == stay[:-1])
    share = np.unique(stay, return_counts=True)[1] / stay.size
    # In random order two neighbours are of one stay as often as any two rows.
    expected = np.square(share).sum()
    assert abs(alike - expected) < 5 * np.sqrt(expected * (1 - expected) / stay.size)


def test_a_second_call_reads_no_parquet(copy):
    first = load_mimic_los(copy)
    shutil.rmtree(copy / "features")
    again = load_mimic_los(copy)
    np.testing.assert_array_equal(first.test.x[:], again.test.x[:])
    np.testing.assert_array_equal(first.test.time, again.test.time)


def test_files_go_where_they_are_asked_for(prepared, tmp_path):
    here = load_mimic_los(prepared, cache=tmp_path / "elsewhere")
    assert len(list((tmp_path / "elsewhere").rglob("*.npy"))) == 3
    assert isinstance(here.train.x, MappedFeatures)


def test_fit_path_takes_the_rows_as_they_are(prepared):
    data = load_mimic_los(prepared)
    edges = quantile_edges(data.train.time, data.train.event, 10)

    def fitted(train, validation):
        return fit_path(
            lambda: MLP(1428, 10, hidden=(8,)),
            family("categorical", edges=edges, interpolation="linear"),
            train,
            validation,
            lambdas=(0.0, 10.0),
            seeds=(0,),
            config=TrainingConfig(epochs=2, batch_size=100, learning_rate=1e-3),
            device="cpu",
        )

    ours = fitted(data.train, data.validation)
    in_memory = [split.replaced(x=split.x[:]) for split in (data.train, data.validation)]
    assert torch.equal(torch.as_tensor(ours.best().objective), torch.as_tensor(fitted(*in_memory).best().objective))


def test_which_data_it_is(prepared, demo):
    assert data_source(read_manifest(prepared)) == "other"
    assert data_source(read_manifest(demo.folder)) == "demo"
    data = load_mimic_los(demo.folder)
    assert data.name == "MIMIC-III length of stay, demo of 100 patients"
    # The instances of the public benchmark, whose training set is halved.
    assert len(data.train) + len(data.validation) == 9042
    assert len(data.test) == 1899
    assert np.unique(data.test.groups).size == 14  # of 15 subjects; one has no instance


def test_deaths_are_as_the_folder_was_prepared(prepared, made_up, tmp_path):
    with pytest.raises(
        ValueError, match=r"folder: expected a folder prepared with --death censor, got .*--death event"
    ):
        load_mimic_los(prepared, death="censor")
    with pytest.raises(ValueError, match="death: expected one of 'event', 'censor', got 'drop'"):
        load_mimic_los(prepared, death="drop")
    assert load_mimic_los(prepared, death="event").train.event.all()
    censored = load_mimic_los(prepare(made_up, tmp_path / "censored", death="censor", threads=1).folder, death="censor")
    assert "deaths censored" in censored.name


def test_folders_that_are_not_whole_are_refused(copy, tmp_path):
    with pytest.raises(FileNotFoundError, match="expected the manifest of a prepared folder, got no such file"):
        load_mimic_los(tmp_path / "nothing")
    file = next(copy.glob("features/split=validation/*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:1000])
    with pytest.raises(ValueError, match=r"split=validation.*: expected a parquet file, got one that cannot be read"):
        load_mimic_los(copy)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="expected a file of the prepared folder, got no such file"):
        load_mimic_los(copy)
    # Nothing half-written is left under its final name, and the part that was whole is used.
    left = {path.name for path in (copy / "training").rglob("*") if path.is_file()}
    assert not any("validation" in name for name in left)
    file.write_bytes(content)
    assert len(load_mimic_los(copy).validation) == len(pq.read_table(file))


def test_bad_cells_are_named(copy):
    file = next(copy.glob("features/split=train/*.parquet"))
    table = pq.read_table(file)
    name = feature_names()[3]
    column = table.column(name).to_numpy().copy()
    column[7] = np.inf
    place = table.schema.get_field_index(name)
    pq.write_table(table.set_column(place, name, [column]), file)
    with pytest.raises(ValueError, match=rf"block-00000.parquet, column {name}: expected finite .* at row 7"):
        load_mimic_los(copy)
    pq.write_table(table.drop_columns([name]), file)
    with pytest.raises(ValueError, match=f"expected a column '{name}', got none"):
        load_mimic_los(copy)
    pq.write_table(table.slice(1), file)
    with pytest.raises(ValueError, match=rf"expected {len(table)} rows, as manifest.json says, got {len(table) - 1}"):
        load_mimic_los(copy)


def test_an_unfinished_folder_is_refused(copy):
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"finished": False}))
    with pytest.raises(ValueError, match=r"folder: expected a folder whose preparation is finished, got .* to resume"):
        load_mimic_los(copy)
