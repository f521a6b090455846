"""A small seeded run of the fuzzing, and a test for each of the kinds of fault that it found.

`python -m tests.fuzz --inputs 10000` is the large form.
"""

import gzip
import inspect
import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import xcal
import xcal_paper.published
from tests.fuzz.files import file_targets
from tests.fuzz.functions import function_targets, rows
from tests.fuzz.fuzzing import fuzzed
from tests.fuzz.outcomes import Target
from tests.fuzz.spoiling import CONSTANTS, fixed_chance, hostile
from xcal.networks import Linear
from xcal_paper.mimic3.files import COLUMNS

FEW = 10
# Callables that are no functions of numbers: results, which only functions make; containers; readers of whole data
# sets, whose files are fuzzed; networks, which torch checks; what needs other processes; and what trusts its arguments,
# as its docstring says.
NOT_FUZZED = {
    "calibration": "ConditionalCalibration mean_across_processes unchecked_penalty",
    "distributions": "",
    "objectives": "gives_cdf",
    "data": "map_parquet",
    "datasets": "data_directory load_metabric load_support",
    "recalibration": "ConformalQuantiles GroupedRecalibration IsotonicSurface RiskRecalibration "
    "TemperatureRecalibration",
    "published": "Shifted counted_as_event",
    "tuning": "",
    "metrics": "",
}
MADE_BY_USERS = {
    *("SoftBins", "KernelFeatures", "SurvivalData", "Range", "SurvivalDataset", "ConditionalCalibration"),
    *("KaplanMeierRecalibration", "IsotonicRecalibration", "BetaRecalibration", "CiPOTRecalibration"),
    *("ConformalQuantiles", "GroupedRecalibration", "AveragedRecalibration", "KSPRecalibration"),
    *("IsotonicSurface", "RiskRecalibration", "TemperatureRecalibration"),
}
TARGETS = list(function_targets())


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hostile_arguments(target):
    assert fuzzed(target, max(1, FEW // target.slow), seed=1).problems == {}


def test_hostile_files(tmp_path):
    # Of the raw tables of MIMIC-III, which take half a second each, one plain and one packed.
    raw = {f"file: {name}.csv{end}" for name in COLUMNS for end in ("", ".gz")}
    left_out = raw - {"file: ICUSTAYS.csv", "file: CHARTEVENTS.csv.gz"}
    targets = [target for target in file_targets(tmp_path) if target.name not in left_out]
    tallies = [fuzzed(target, max(1, 2 * FEW // target.slow), seed=1) for target in targets]
    assert [problem for tally in tallies for problem in tally.problems.values()] == []


@pytest.mark.parametrize("package", sorted(NOT_FUZZED))
def test_every_public_function_is_fuzzed(package):
    module = import_module("xcal_paper.published" if package == "published" else f"xcal.{package}")
    known = {target.name.split(".")[1].split(" ")[0] for target in TARGETS if "." in target.name}
    left = {name for name in module.__all__ if callable(getattr(module, name)) and not _only_a_result(module, name)}
    assert left - known == set(NOT_FUZZED[package].split())


def _only_a_result(module, name):
    """Whether it is an interface, or the class of a result, which functions make and users do not."""
    made = getattr(module, name)
    result = inspect.isclass(made) and hasattr(made, "__dataclass_fields__") and name not in MADE_BY_USERS
    return result or inspect.isabstract(made)


R = rows()
OWN = {"time": R["time"], "event": R["event"]}
AT = {"probability": R["probability"], "at": 1.0} | OWN


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: xcal.d_calibration(R["cdf"], R["event"], n_bins=10**9),
            "n_bins: expected an integer of at most",
        ),
        (
            lambda: xcal.metrics.pp_curve(R["cdf"], event=R["event"], n_points=2**63),
            "n_points: expected an integer of at",
        ),
        (lambda: xcal.metrics.one_calibration(**AT, n_risk_groups=10**400), "n_risk_groups: expected an integer of at"),
        (lambda: xcal.metrics.kaplan_meier(time=[10**400], event=[1]), "time: expected numbers, got values of mixed"),
        (lambda: xcal.metrics.concordance_index(**OWN, risk=R["risk"], method=np.array([])), "method: expected one of"),
        (
            lambda: xcal.metrics.brier_score(R["survival"], R["times"], **OWN, left_limit=np.zeros(3)),
            "left_limit: expected True or False",
        ),
        (
            lambda: xcal.metrics.decision_curve(thresholds=torch.zeros(2, device="meta"), **AT),
            "thresholds: expected a tensor whose values can be read",
        ),
        (
            lambda: xcal.d_calibration(R["cdf"], R["event"], groups=torch.eye(3).to_sparse()),
            "groups: expected a tensor whose values can be read",
        ),
        (
            lambda: xcal.d_calibration(R["cdf"], R["event"], groups=np.zeros(24, dtype=[("a", float)])),
            "groups: expected a one-dimensional array",
        ),
        (lambda: xcal.d_calibration(R["cdf"], R["event"], method=np.zeros((9, 9))), r"method: expected [^\n]*$"),
        (lambda: xcal.conditional_calibration(R["cdf"], R["event"], R["X"], where=R["X"]), "where: expected True or"),
        (
            lambda: xcal.conditional_calibration(R["cdf"], R["event"], R["X"], n_features=10**6),
            "n_features: expected at most 131,072 features times bins, got 1,000,000 features times 20 bins",
        ),
        (
            lambda: xcal.conditional_calibration(R["cdf"], R["event"], R["X"], n_bins=10**5),
            "n_features: expected at most 131,072 features times bins, got 128 features times 100,000 bins",
        ),
        (
            lambda: xcal.conditional_calibration(R["cdf"], R["event"], R["X"], features=np.zeros((24, 10**4))),
            "features: expected at most 131,072 features times bins, got 10,000 features times 20 bins",
        ),
        (
            lambda: xcal.d_calibration(R["cdf"], R["event"], n_bins=10**6, method="km"),
            "n_bins: expected an integer of at most 100,000",
        ),
        (
            lambda: xcal.XCALLoss(temperature=torch.ones(24)),
            "temperature: expected a number, or a floating-point tensor of one number, got shape",
        ),
        (
            lambda: xcal.XCALLoss()(torch.zeros(24, device="meta"), torch.ones(24)),
            "cdf: expected a tensor whose values can be read",
        ),
        (
            lambda: xcal.XCALLoss()(torch.zeros(24), R["event"], np.ones(24, dtype=complex)),
            r"weights: expected real numbers, got dtype torch\.complex128",
        ),
        (
            lambda: xcal.evaluate(**OWN, cdf=R["cdf"], metrics=np.array(0.5)),
            "metrics: expected names of metrics",
        ),
        (
            lambda: xcal.SurvivalModel(validation_fraction=1e-320).fit(R["X"], _y()),
            "validation_fraction: expected a share that leaves less than all rows",
        ),
        (lambda: xcal.XCALLoss(temperature=1e-320), "temperature: expected a number of 1e-100 or more"),
        (
            lambda: xcal.distributions.quantile_edges(R["time"], R["event"], 2**63),
            "n_bins: expected an integer of at most",
        ),
        (
            lambda: xcal.nll(_law(), torch.ones(24, device="meta"), torch.ones(24, dtype=torch.bool)),
            "event: expected the device of time, meta, got cpu",
        ),
        (
            lambda: xcal.SurvivalData(R["X"], **OWN, groups=torch.eye(3).to_sparse()),
            "groups: expected a tensor whose values can be read",
        ),
        (lambda: _path(lambdas=torch.zeros(2, device="meta")), "lambdas: expected a sequence of numbers"),
        (lambda: _path(lambdas=[10**400]), "lambdas: expected a sequence of numbers"),
        (lambda: _path(seeds=np.array(3)), "seeds: expected a sequence of at least one seed"),
        (lambda: _path(conditional=3), "conditional: expected None or a maker of features"),
        (lambda: _path(checkpoint=np.zeros(3)), "checkpoint: expected None or the path of a folder"),
        (lambda: _path(calibration_bins=10**6), "calibration_bins: expected an integer of at most"),
        (lambda: _path(distributed=np.zeros(3)), "distributed: expected None, True, False"),
        (lambda: xcal.distributions.mixture(5), "components: expected a list of distributions"),
        (
            lambda: xcal.distributions.Weibull(torch.ones(3), torch.ones(3, device="meta")),
            "concentration: expected the device of scale, cpu, got meta",
        ),
        (
            lambda: xcal.distributions.RecalibratedDistribution(1, [0, 1], [0, 1]),
            "base: expected a SurvivalDistribution",
        ),
        (lambda: xcal_paper.published.ranking_time(None), "dist: expected a SurvivalDistribution, got NoneType"),
        (lambda: xcal.SurvivalData(R["X"], **OWN, feature_names=2), "feature_names: expected a sequence of names"),
        (lambda: xcal.SurvivalModel(random_state=len).fit(R["X"], _y()), "random_state: .* cannot be used to seed"),
        (lambda: xcal.SurvivalModel(distribution=np.array(0.5)).fit(R["X"], _y()), "distribution: expected one of"),
        (lambda: xcal.SurvivalModel().fit([[1.0], [2.0, 3.0]], _y()), "X: expected rows of one length"),
        (lambda: xcal.SurvivalModel().fit(np.zeros(24), _y()), r"X: Expected 2D array[^\n]*$"),
        (lambda: xcal.SurvivalPath(average=R["X"]).fit(R["X"], _y()), "average: expected True or False"),
        (lambda: xcal.audit(y=_y(), cdf=R["cdf"], time_unit=3), "time_unit: expected text, got 3"),
    ],
)
def test_faults_that_were_found(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _path(**options):
    data = xcal.SurvivalData(R["X"], **OWN)
    return xcal.fit_path(lambda: Linear(2, 2), xcal.family("lognormal"), data, data, **options)


def _law():
    return xcal.distributions.Weibull(torch.ones(24), torch.ones(24))


def test_levels_of_another_byte_order():
    made = xcal.distributions.RecalibratedDistribution(_law(), [0, 1], np.array([0, 1], dtype=">f8"))
    assert torch.equal(made.cdf(torch.ones(24)), _law().cdf(torch.ones(24)))


def _y():
    return xcal.Surv(**OWN)


def test_a_long_value_is_cut_and_on_one_line():
    with pytest.raises(ValueError, match="method: expected") as caught:
        xcal.d_calibration(R["cdf"], R["event"], method=np.zeros((100, 100)))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_damaged_packed_table_is_one_error(tmp_path):
    from xcal.cli.table_file import read_table_file

    content = bytearray(gzip.compress(b"a,b\n" + b"1,2\n" * 1000))
    content[20:24] = b"\xff\xff\xff\xff"
    (tmp_path / "t.csv.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.csv\.gz: expected a table of columns"):
        read_table_file(tmp_path / "t.csv.gz")


LONG_EXPONENT = """
import sys
from pathlib import Path
from xcal.cli.table_file import read_table_file
for _ in range(60):
    print(read_table_file(Path(sys.argv[1])).frame.iloc[:, 1].tolist())
"""


@pytest.mark.parametrize("name", ["ids.csv", "ids.csv.gz"])
def test_an_identifier_like_a_number_of_a_long_exponent_does_not_end_the_process(tmp_path, name):
    content = b"t,id\n1,3e2\n2,12e9999999999\n3,0.7511e999902732041016\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    command = [sys.executable, "-c", LONG_EXPONENT, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"['3e2', '12e9999999999', '0.7511e999902732041016']"}


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b"[]"])
def test_a_damaged_summary_is_one_error(tmp_path, content):
    from xcal.cli.run_folder import read_summary

    (tmp_path / "summary.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"summary\.json: expected (JSON|a table of keys and values)"):
        read_summary(tmp_path)


@pytest.mark.parametrize(
    "line", [b"17,1\n18;0", "17,1\n²,0".encode(), b"17,1\n\xff,0", b"17,1\n" + b"9" * 5000 + b",0"]
)
def test_a_damaged_list_of_subjects_is_one_error(tmp_path, line):
    from xcal_paper.mimic3.steps import read_test_subjects

    (tmp_path / "subjects.csv").write_bytes(line)
    with pytest.raises(ValueError, match=r"subjects\.csv: expected a subject id and 0 or 1 .* at line 2"):
        read_test_subjects(tmp_path / "subjects.csv")


def test_every_input_can_be_made_again_alone():
    target = next(target for target in TARGETS if target.name == "xcal.conditional_calibration")
    apart = [repr(hostile(target.name, target.arguments, 1, number)) for number in (7, 3)]
    together = [repr(hostile(target.name, target.arguments, 1, number)) for number in range(8)]
    assert apart == [together[7], together[3]]
    assert len(set(together)) == 8
    with fixed_chance(5):
        drawn = np.random.default_rng().random()
    with fixed_chance(5):
        assert np.random.default_rng().random() == drawn
    assert np.random.default_rng().random() != drawn


def test_what_an_input_writes_is_gone_before_the_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []

    def writes(n):
        seen.append(sorted(path.name for path in Path().iterdir()))
        Path("left").write_text("by a path among the arguments")

    assert fuzzed(Target("writes", writes, {"n": 1}), 5, seed=1).problems == {}
    assert len(seen) > 3
    assert not any(seen)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [value for value in CONSTANTS if str(value).startswith("/")])
def test_no_path_among_the_hostile_values_can_be_made(path):
    with pytest.raises(NotADirectoryError):
        Path(path).mkdir(parents=True)


def test_lists_within_lists_in_an_r_file(tmp_path):
    import lzma

    from xcal_paper.glioma import read_string_frame

    nested = b"RDX2\nX\n" + struct.pack(">iii", 2, 0, 0) + struct.pack(">ii", 19, 1) * 5000
    with pytest.raises(ValueError, match=r"glioma: expected an R data file .* RecursionError"):
        read_string_frame("glioma", lzma.compress(nested))


HEADER = """
import resource, struct, sys
from pathlib import Path
import xcal, numpy as np
from xcal.data import map_parquet
from xcal_paper.simulated import parse_idx
import gzip, json, pyarrow.parquet
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
folder = Path(sys.argv[1])
header = json.dumps({"w": {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]}}).encode()
(folder / "model").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
(folder / "path.ckpt").write_bytes(struct.pack("<Q", 10**12) + header)
from xcal.training.checkpoint import read_tensors
idx = gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">III", 2**31, 2**31, 2**31))
for call in (
    lambda: xcal.load(folder / "model"),
    lambda: read_tensors(folder / "model"),
    lambda: read_tensors(folder / "path.ckpt"),
    lambda: parse_idx("images", idx, 3),
):
    try:
        call()
        print("read")
    except ValueError as error:
        print("refused")
"""


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_header_that_claims_a_million_million_rows_takes_no_memory(tmp_path):
    done = subprocess.run([sys.executable, "-c", HEADER, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["refused"] * 4, done.stderr
