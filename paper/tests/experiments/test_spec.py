"""Specs: the shipped ones are whole and follow the appendix; a typo, a wrong type or an unknown name is one error."""

from dataclasses import replace

import pytest
from tests.small_table import small_table

from xcal.calibration import SoftBins
from xcal_paper import load_spec, reproduce, table_names
from xcal_paper.comparison import METRICS, paper_values
from xcal_paper.models import make_network
from xcal_paper.records import jobs_of
from xcal_paper.spec import VariantSpec, soft_bins

LAMBDAS = (0, 1, 5, 10, 50, 100, 500, 1000)


def test_every_table_of_the_issue_is_there():
    assert set(table_names()) == {
        "gamma-censored",
        "gamma-uncensored",
        "mnist-censored",
        "mnist-censored-code",
        "mnist-dense",
        "mnist-uncensored",
        "mnist-uncensored-code",
        "glioma",
        "mimic-los",
        "mimic-los-death-censored",
        "gamma-choice",
        "jensen-slack",
    }


@pytest.mark.parametrize("table", table_names())
def test_every_cell_has_its_figure_in_the_paper_and_the_other_way_round(table):
    spec = load_spec(table)
    assert len(spec.seeds) == 3
    cells = {(model.name, lam, m) for model in spec.models for lam in spec.lambdas for m in METRICS[spec.kind]}
    if spec.data.name == "mimic":
        # The paper prints no likelihood for a model that minimises another score here.
        cells -= {("lognormal-scrps", lam, "nll") for lam in spec.lambdas}
    assert cells == set(paper_values(spec.paper))


# The appendix on experimental details.
@pytest.mark.parametrize(
    ("table", "epochs", "batch", "rate", "decay", "bins", "time_bins", "models"),
    [
        ("gamma-censored", 100, 1000, 1e-3, 0, 20, 50, 6),
        ("gamma-uncensored", 100, 1000, 1e-3, 0, 20, 50, 6),
        ("mnist-censored", 200, 5000, 1e-3, 1e-4, 20, 50, 6),
        ("mnist-uncensored", 200, 5000, 1e-3, 1e-4, 20, 50, 6),
        ("glioma", 10_000, 1201, 1e-2, 0, 10, 20, 7),
        ("mimic-los", 200, 5000, 1e-3, 1e-4, 20, 20, 3),
        ("mimic-los-death-censored", 200, 5000, 1e-3, 1e-4, 20, 20, 3),
    ],
)
def test_the_settings_are_those_of_the_appendix(table, epochs, batch, rate, decay, bins, time_bins, models):
    spec = load_spec(table)
    training = spec.training
    assert (training.epochs, training.batch_size, training.learning_rate) == (epochs, batch, rate)
    assert (training.weight_decay, spec.calibration_bins, spec.time_bins) == (decay, bins, time_bins)
    assert len(spec.models) == models
    assert spec.lambdas == LAMBDAS


@pytest.mark.parametrize("table", ["mnist-censored", "mnist-uncensored"])
def test_the_network_of_the_published_code_is_all_that_changes(table):
    text, code = load_spec(table), load_spec(f"{table}-code")
    assert replace(code.training, compile=False) == text.training
    assert (text.data, text.lambdas) == (code.data, code.lambdas)
    for one, other in zip(text.models, code.models, strict=True):
        assert (one.network, other.network) == ("cnn", "published-cnn")
        assert replace(other, network="cnn", hidden=one.hidden, released_dropout=True) == one


def test_dropout_of_mnist_is_that_of_the_appendix():
    dropout = {
        table: {model.distribution: model.dropout for model in load_spec(f"mnist-{table}").models}
        for table in ("censored", "uncensored")
    }
    assert dropout["censored"] == {"categorical": 0.1, "mtlr": 0.2, "lognormal": 0.1}
    assert dropout["uncensored"] == {"categorical": 0.2, "mtlr": 0.2, "lognormal": 0.1}


def test_mnist_drops_whole_channels_as_the_released_layers_do():
    for table in ("censored", "uncensored"):
        for model in load_spec(f"mnist-{table}").models:
            network = make_network(model, VariantSpec(), (1, 28, 28), 3)()
            kinds = {type(module).__name__ for module in network.modules() if "Dropout" in type(module).__name__}
            # The linear head of MTLR has nothing to drop.
            assert kinds == ({"Dropout2d", "Dropout"} if model.hidden else {"Dropout2d"})


def test_penalties():
    model = load_spec("gamma-censored").models[0]
    assert soft_bins("paper", model) == SoftBins("product", gamma=1e4, censored="soft")
    assert soft_bins("ours", model) == SoftBins("partition", temperature=0.5, censored="exact")
    gammas = [soft_bins("paper", model).gamma for model in load_spec("gamma-choice").models]
    assert gammas == [10, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 5e7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epochs = 2", "epoch = 2"), "training: expected one of the keys epochs, .*got 'epoch'"),
        (("epochs = 2\n", ""), "training: expected a value for 'epochs', got none"),
        (("epochs = 2", 'epochs = "two"'), "training.epochs: expected a whole number, got 'two'"),
        (("epochs = 2", "epochs = 0"), "epochs: expected an integer of 1 or more, got 0"),
        (("title =", "titel ="), "expected one of the keys table, kind, .*got 'titel'"),
        (("bias = true", "biass = true"), "variants.as-published: expected one of the keys bias, .*got 'biass'"),
        (("[variants.corrected]", "[variants.correct]"), "variants: expected one of the keys .*got 'correct'"),
        (
            ('distribution = "mtlr"', 'distribution = "mltr"'),
            r"models\[2\].distribution: expected (one of )?'lognormal'.*got 'mltr'",
        ),
        (('interpolation = "step"\n', ""), "interpolation: expected step or linear for a discrete model"),
        (("hidden = [16]", "hidden = 16"), "hidden: expected a list, got 16"),
        (("lambdas = [0, 10]", "lambdas = [0, -1]"), "lambdas: expected different numbers, zero or larger"),
        (
            ("lambdas = [0, 10]", "lambdas = [0, 10]\nlarger_lambdas = [5]"),
            "larger_lambdas: expected different numbers above 10",
        ),
        (("seeds = [0, 1]", "seeds = [1, 1]"), "seeds: expected different seeds"),
        (("n = [600, 300, 400]", "n = [600, 300]"), "data.n: expected three numbers of rows"),
        (('name = "mtlr-i"', 'name = "categorical-ni"'), "models: expected models of different names"),
        (("seed = 0", "seed = "), "expected a TOML file, got one that cannot be read"),
    ],
)
def test_a_spec_with_a_mistake_is_one_clear_error(small, change, message):
    with pytest.raises(ValueError, match=message):
        load_spec(small(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('table = "small"', 'table = "../x"'), r"table: expected a name of letters, .*got '\.\./x'"),
        (('table = "small"', 'table = "/tmp/x"'), "table: expected a name"),
        (('table = "small"', 'table = ".."'), "table: expected a name"),
        (('table = "small"', 'table = "a/b"'), "table: expected a name"),
        (('table = "small"', r'table = "a\\b"'), "table: expected a name"),
        (('table = "small"', 'table = ""'), "table: expected a name"),
        (('table = "small"', r'table = "a\u0000"'), "table: expected a name"),
        (('table = "small"', r'table = "a\n"'), "table: expected a name"),
        (("test_rows = 250", "test_rows = 0"), r"variants\.as-published\.test_rows: expected a whole number of 1 or"),
        (("test_rows = 250", "test_rows = -5"), r"variants\.as-published\.test_rows: expected a whole number of 1 or"),
        (
            ('network = "linear"', 'network = "cnn"'),
            r"models\[2\]\.network: expected one for the gamma data .*got 'cnn'",
        ),
        (('network = "linear"', 'network = "published-cnn"'), r"models\[2\]\.network: expected one for the gamma data"),
        (
            ('network = "linear"', 'network = "aft"'),
            r"models\[2\]\.network: expected another one: 'aft' is a regression",
        ),
        (
            ('network = "linear"', 'network = "linear"\nhidden = [3]'),
            r"models\[2\]\.network: .*'linear', which has none",
        ),
        (
            ('network = "linear"', 'network = "linear"\ngamma = 0.0'),
            r"models\[2\]\.gamma: expected a finite number above 0",
        ),
        (('network = "linear"', 'network = "linear"\ngamma = nan'), r"models\[2\]\.gamma: expected a finite number"),
        (
            ('network = "linear"', 'network = "linear"\nreleased_dropout = true'),
            r"models\[2\]\.released_dropout: expected",
        ),
        (("hidden = [16]", "hidden = [0]"), r"models\[0\]\.hidden: expected at most 100 layers"),
        (("hidden = [16]", "hidden = [1000000000]"), r"models\[0\]\.hidden: expected at most 100 layers"),
        (("hidden = [16]", "hidden = [16]\ndropout = 1.0"), r"models\[0\]\.dropout: expected a probability"),
        (('name = "mtlr-i"', 'name = "a,b"'), r"models\[2\]\.name: expected a name without commas"),
        (('name = "mtlr-i"', 'name = ""'), r"models\[2\]\.name: expected a name without commas"),
        (("lambdas = [0, 10]", "lambdas = [0, nan]"), r"lambdas\[1\]: expected a finite number, got nan"),
        (("lambdas = [0, 10]", "lambdas = [0, inf]"), r"lambdas\[1\]: expected a finite number, got inf"),
        (("lambdas = [0, 10]", "lambdas = []"), "lambdas: expected different numbers"),
        (("lambdas = [0, 10]", f"lambdas = [{10**400}]"), r"lambdas\[0\]: expected a finite number"),
        (("seeds = [0, 1]", f"seeds = [{2**64}]"), r"seeds\[0\]: expected a whole number of 64 bits"),
        (("seeds = [0, 1]", "seeds = [-1]"), "seeds: expected at least one seed"),
        (("seeds = [0, 1]", "seeds = []"), "seeds: expected at least one seed"),
        (("seed = 0", "seed = -1"), r"data\.seed: expected a whole number, zero or larger"),
        (("seed = 0", "seed = " + "9" * 5000), "expected a TOML file, got one that cannot be read"),
        (("calibration_bins = 20", "calibration_bins = 1"), "calibration_bins: expected from 2 to"),
        (("time_bins = 10", f"time_bins = {10**12}"), "time_bins: expected from 2 to"),
        (("learning_rate = 1e-3", "learning_rate = 0"), r"training\.learning_rate: expected a finite number above 0"),
        (("learning_rate = 1e-3", "learning_rate = nan"), r"training\.learning_rate: expected a finite number"),
        (("batch_size = 200", "batch_size = 0"), r"training\.batch_size: expected an integer of 1 or more"),
        (
            ('groups = "mean-quartiles"', 'groups = "label"'),
            r"data\.groups: expected a grouping defined for this data set",
        ),
        (("seed = 0", "seed = " + "[" * 20_000), "expected a TOML file, got one that cannot be read"),
    ],
)
def test_a_spec_that_does_not_fit_together_names_file_and_key(small, change, message):
    path = small(change)
    with pytest.raises(ValueError, match=message) as caught:
        load_spec(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    "content", [b"\xff\xfe table", b'table = "\xe9"', b"\x00", b"", b"= 1", b"[[models]]", b"models = 5"]
)
def test_a_file_of_any_bytes_is_one_clear_error(tmp_path, content):
    path = tmp_path / "odd.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r": expected .*, got ") as caught:
        load_spec(path)
    assert str(caught.value).startswith(str(path))


def test_nothing_is_written_outside_the_results(small, tmp_path):
    (tmp_path / "inner").mkdir()
    path = small(('table = "small"', 'table = "../../escaped"'))
    with pytest.raises(ValueError, match="table: expected a name"):
        reproduce(path, results=tmp_path / "inner" / "results", device="cpu")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["inner", "small.toml"]


def test_the_shape_of_the_first_guess_needs_an_intercept(small):
    aft = (
        'distribution = "mtlr"\ninterpolation = "linear"\nnetwork = "linear"',
        'distribution = "weibull"\nnetwork = "aft"',
    )
    guess = ("[variants.corrected]", "[variants.corrected]\nfirst_guess = true\nintercept = false")
    assert load_spec(small(aft)).models[2].network == "aft"
    with pytest.raises(ValueError, match=r"variants\.corrected\.first_guess: expected false, or an intercept"):
        load_spec(small(aft, guess))


HOSTILE = [
    *(
        "true",
        "false",
        "0",
        "-1",
        "1",
        "3",
        str(2**62),
        str(2**63),
        str(10**400),
        "nan",
        "inf",
        "-inf",
        "-0.5",
        "1e308",
    ),
    *('""', '"x"', '"../x"', r'"\u0000"', "[]", "[0]", "[-1]", "[[0]]", '["a"]', "[nan]", "[0, 0]", "{}", "{a = 1}"),
    *("1979-05-27", "07:32:00", "[" * 60 + "]" * 60, "[1, 2, 3]", f"[{2**63}, 1, 1]"),
]
KEYS = [(line, line.split(" = ")[0]) for line in dict.fromkeys(small_table().splitlines()) if " = " in line]
OPTIONAL = {
    "[training]": ("weight_decay", "compile", "tf32"),
    "[data]": ("censored", "per_seed"),
    "[variants.corrected]": ("bias", "test_rows", "intercept", "first_guess"),
    'network = "linear"': ("objective", "hidden", "dropout", "released_dropout", "gamma"),
}
CHANGES = [(line, key, "{key} = {value}") for line, key in KEYS]
CHANGES += [(line, key, line + "\n{key} = {value}") for line, keys in OPTIONAL.items() for key in keys]


@pytest.mark.parametrize(("line", "key", "form"), CHANGES, ids=[f"{key} after {line}" for line, key, _ in CHANGES])
def test_a_hostile_value_of_any_key_is_the_project_error_or_a_spec(small, line, key, form):
    for value in HOSTILE:
        path = small((line, form.format(key=key, value=value)))
        try:
            load_spec(path)
        except ValueError as error:
            text = str(error)
        else:
            continue
        assert text.startswith(f"{path}: ")
        assert ": expected " in text
        assert ", got " in text


@pytest.mark.parametrize("table", ["data", "training", "variants", "models"])
@pytest.mark.parametrize("value", ["5", '"x"', "[]", "[1]", "[[]]", "{}", "true"])
def test_a_table_that_is_something_else(small, tmp_path, table, value):
    text = small().read_text()
    start = next(place for place in (f"[{table}]", f"[{table}.", f"[[{table}]]") if place in text)
    path = tmp_path / "odd.toml"
    path.write_text(f"{table} = {value}\n" + text[: text.index(start)])
    with pytest.raises(ValueError, match=r": expected .*, got ") as caught:
        load_spec(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_unknown_names_are_answered_with_the_known_ones(small):
    with pytest.raises(ValueError, match=r"table: expected one of gamma-censored, .*got 'gamma'"):
        load_spec("gamma")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.toml, which does not exist"):
        load_spec("nowhere.toml")
    spec = load_spec(small())
    with pytest.raises(ValueError, match="models: expected some of lognormal-nll, categorical-ni, mtlr-i, got foo"):
        spec.narrowed(models=["foo"])
    with pytest.raises(ValueError, match=r"lambdas: expected some of 0, 10, got 3"):
        spec.narrowed(lambdas=[0, 3])
    with pytest.raises(ValueError, match="seeds: expected at least one seed"):
        spec.narrowed(seeds=[])
    with pytest.raises(ValueError, match="epochs: expected an integer of 1 or more"):
        spec.narrowed(epochs=0)


def test_the_hash_is_of_what_decides_the_numbers(small):
    def digest(*changes, variant="as-published", penalty="paper", model=1):
        spec = load_spec(small(*changes))
        return spec.hash(spec.models[model], variant, penalty)

    first = digest()
    same = [
        [("[training]", "# a comment\n[training]")],
        [('title = "A small table"', 'title = "Another"')],
        [('label = "Categorical"', 'label = "Cat"')],
        [("lambdas = [0, 10]", "lambdas = [0, 10, 100]")],
        [("seeds = [0, 1]", "seeds = [0, 1, 2]")],
    ]
    assert {digest(*changes) for changes in same} == {first}
    others = [
        [("epochs = 2", "epochs = 3")],
        [("seed = 0", "seed = 1")],
        [("time_bins = 10", "time_bins = 12")],
        [("hidden = [16]", "hidden = [17]")],
        [("test_rows = 250", "test_rows = 240")],
    ]
    hashes = {first, digest(penalty="ours"), digest(variant="corrected"), digest(model=2)}
    hashes |= {digest(*changes) for changes in others}
    assert len(hashes) == 4 + len(others)


def test_lambdas_beyond_the_papers_are_a_job_of_their_own_and_not_for_its_penalty():
    spec = load_spec("gamma-censored")
    paper, ours = spec.of_penalty("paper"), spec.of_penalty("ours")
    assert paper.lambdas == spec.lambdas
    assert ours.lambdas == (*spec.lambdas, 3000, 10000)
    model = spec.models[0]
    table, larger = jobs_of(ours, model)
    assert jobs_of(paper, model) == [table]
    assert (larger.lambdas, larger.seeds) == ((3000, 10000), spec.seeds)
    assert jobs_of(ours.narrowed(lambdas=[3000]), model)[0].lambdas == (3000,)
    assert ours.hash(model, "as-published", "ours") == spec.hash(model, "as-published", "ours")
