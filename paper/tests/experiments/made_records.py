"""Records made by hand, for tests of what is done with records."""

from xcal_paper import Record, RecordFile, load_spec
from xcal_paper.comparison import paper_values
from xcal_paper.records import is_trial


def write(results, path, metrics, *, variant="as-published", penalty="paper", seeds=(0, 1), epochs=None):
    """Write records with the metrics that ``metrics(model, lam, seed)`` returns."""
    full = load_spec(path)
    spec = full.narrowed(epochs=epochs)
    records = [
        Record(
            table=spec.table,
            variant=variant,
            penalty=penalty,
            model=model.name,
            lam=lam,
            seed=seed,
            spec_hash=spec.hash(model, variant, penalty),
            data_hash="",
            epochs=spec.training.epochs,
            best_epoch=0,
            metrics=metrics(model.name, lam, seed),
            validation={},
            recalibrated=metrics(model.name, lam, seed) if lam == 0 else {},
        )
        for model in spec.models
        for lam in spec.lambdas
        for seed in seeds
    ]
    for trial in (False, True):
        own = [r for r in records if is_trial(full, spec, spec.model(r.model), variant) == trial]
        if own:
            RecordFile.of(results, spec, variant, penalty, trial=trial).add(own)


def as_the_paper(model, lam, seed):
    """Values of the paper, a little up with one seed and down with the other."""
    paper = paper_values("gamma-censored")
    found = {metric: paper[model, lam, metric] for metric in ("nll", "dcal", "concordance")}
    found["nll"] += 0.01 * (-1) ** seed
    return found | {"dcal_floor": 1e-5, "dcal_within": 0.1, "dcal_within_floor": 1e-5, "nll_density": 0.0}


def path_metrics(nll, concordance):
    """Metrics of a path whose D-calibration is 1e-2 / (1 + lambda) and whose other metrics are given."""

    def metrics(model, lam, seed):
        own = {"dcal": 1e-2 / (1 + lam), "dcal_floor": 1e-5, "nll": nll(lam), "concordance": concordance(lam)}
        return own | {"dcal_within": 0.1, "dcal_within_floor": 1e-5, "nll_density": 0.0}

    return metrics
