"""Specs: the shipped ones are whole and follow the appendix; a typo, a wrong type or an unknown name is one error."""

from dataclasses import replace

import pytest

from xcal.calibration import SoftBins
from xcal.experiments import load_spec, table_names
from xcal.experiments.comparison import METRICS
from xcal.experiments.models import make_network
from xcal.experiments.paper import paper_figures
from xcal.experiments.spec import VariantSpec, soft_bins

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
        "gamma-choice",
        "jensen-slack",
    }


@pytest.mark.parametrize("table", table_names())
def test_every_cell_has_its_figure_in_the_paper_and_the_other_way_round(table):
    spec = load_spec(table)
    assert len(spec.seeds) == 3
    cells = {(row.name, lam, m) for row in spec.rows for lam in spec.lambdas for m in METRICS[spec.kind]}
    assert cells == set(paper_figures(spec.paper))


# The appendix on experimental details.
@pytest.mark.parametrize(
    ("table", "epochs", "batch", "rate", "decay", "bins", "time_bins", "rows"),
    [
        ("gamma-censored", 100, 1000, 1e-3, 0, 20, 50, 6),
        ("gamma-uncensored", 100, 1000, 1e-3, 0, 20, 50, 6),
        ("mnist-censored", 200, 5000, 1e-3, 1e-4, 20, 50, 6),
        ("mnist-uncensored", 200, 5000, 1e-3, 1e-4, 20, 50, 6),
        ("glioma", 10_000, 1201, 1e-2, 0, 10, 20, 7),
    ],
)
def test_the_settings_are_those_of_the_appendix(table, epochs, batch, rate, decay, bins, time_bins, rows):
    spec = load_spec(table)
    training = spec.training
    assert (training.epochs, training.batch_size, training.learning_rate) == (epochs, batch, rate)
    assert (training.weight_decay, spec.calibration_bins, spec.time_bins) == (decay, bins, time_bins)
    assert len(spec.rows) == rows
    assert spec.lambdas == LAMBDAS


@pytest.mark.parametrize("table", ["mnist-censored", "mnist-uncensored"])
def test_the_network_of_the_published_code_is_all_that_changes(table):
    text, code = load_spec(table), load_spec(f"{table}-code")
    assert replace(code.training, compile=False) == text.training
    assert (text.data, text.lambdas) == (code.data, code.lambdas)
    for one, other in zip(text.rows, code.rows, strict=True):
        assert (one.network, other.network) == ("cnn", "published-cnn")
        assert replace(other, network="cnn", hidden=one.hidden, released_dropout=True) == one


def test_dropout_of_mnist_is_that_of_the_appendix():
    dropout = {
        table: {row.model: row.dropout for row in load_spec(f"mnist-{table}").rows}
        for table in ("censored", "uncensored")
    }
    assert dropout["censored"] == {"categorical": 0.1, "mtlr": 0.2, "lognormal": 0.1}
    assert dropout["uncensored"] == {"categorical": 0.2, "mtlr": 0.2, "lognormal": 0.1}


def test_mnist_drops_whole_channels_as_the_released_layers_do():
    for table in ("censored", "uncensored"):
        for row in load_spec(f"mnist-{table}").rows:
            network = make_network(row, VariantSpec(), (1, 28, 28), 3)()
            kinds = {type(module).__name__ for module in network.modules() if "Dropout" in type(module).__name__}
            # The linear head of MTLR has nothing to drop.
            assert kinds == ({"Dropout2d", "Dropout"} if row.hidden else {"Dropout2d"})


def test_penalties():
    row = load_spec("gamma-censored").rows[0]
    assert soft_bins("paper", row) == SoftBins("product", gamma=1e4, censored="soft")
    assert soft_bins("ours", row) == SoftBins("partition", temperature=0.5, censored="exact")
    gammas = [soft_bins("paper", row).gamma for row in load_spec("gamma-choice").rows]
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
        (('model = "mtlr"', 'model = "mltr"'), r"rows\[2\].model: expected 'lognormal' or .*got 'mltr'"),
        (('interpolation = "step"\n', ""), "interpolation: expected step or linear for a discrete model"),
        (("hidden = [16]", "hidden = 16"), "hidden: expected a list, got 16"),
        (("lambdas = [0, 10]", "lambdas = [0, -1]"), "lambdas: expected different numbers, zero or larger"),
        (("seeds = [0, 1]", "seeds = [1, 1]"), "seeds: expected different seeds"),
        (("n = [600, 300, 400]", "n = [600, 300]"), "data.n: expected three numbers of rows"),
        (('name = "mtlr-i"', 'name = "categorical-ni"'), "rows: expected rows of different names"),
        (("seed = 0", "seed = "), "expected a TOML file, got one that cannot be read"),
    ],
)
def test_a_spec_with_a_mistake_is_one_clear_error(small, change, message):
    with pytest.raises(ValueError, match=message):
        load_spec(small(change))


def test_unknown_names_are_answered_with_the_known_ones(small):
    with pytest.raises(ValueError, match=r"table: expected one of gamma-censored, .*got 'gamma'"):
        load_spec("gamma")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.toml, which does not exist"):
        load_spec("nowhere.toml")
    spec = load_spec(small())
    with pytest.raises(ValueError, match="rows: expected some of lognormal-nll, categorical-ni, mtlr-i, got foo"):
        spec.narrowed(rows=["foo"])
    with pytest.raises(ValueError, match=r"lambdas: expected some of 0, 10, got 3"):
        spec.narrowed(lambdas=[0, 3])
    with pytest.raises(ValueError, match="seeds: expected at least one seed"):
        spec.narrowed(seeds=[])
    with pytest.raises(ValueError, match="epochs: expected an integer of 1 or more"):
        spec.narrowed(epochs=0)


def test_the_hash_is_of_what_decides_the_numbers(small):
    def digest(*changes, variant="as-published", penalty="paper", row=1):
        spec = load_spec(small(*changes))
        return spec.hash(spec.rows[row], variant, penalty)

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
    hashes = {first, digest(penalty="ours"), digest(variant="corrected"), digest(row=2)}
    hashes |= {digest(*changes) for changes in others}
    assert len(hashes) == 4 + len(others)
