"""A pipeline of scikit-learn that has all predictions of its last step, and prepares validation rows too."""

from typing import Any, Self

from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.metaestimators import available_if


def _last_has(name: str) -> Any:
    def check(pipeline: Any) -> bool:
        # An AttributeError of the last step says which method it does not have.
        getattr(pipeline.steps[-1][1], name)
        return True

    return check


class SurvivalPipeline(Pipeline):
    """scikit-learn's `Pipeline` with the predictions of a survival estimator as its last step.

    A plain `Pipeline` has `predict` and `score` only. This one also has `predict_survival_function`, `predict_cdf`,
    `predict_quantile`, `predict_median`, `predict_distribution` and `d_calibration`, each on rows as `fit` takes them,
    and sends the features of ``validation_data`` through the steps before the last.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from xcal import Surv, SurvivalModel
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 3)), Surv(time=rng.exponential(size=200), event=np.ones(200))
    >>> pipeline = make_survival_pipeline(StandardScaler(), SurvivalModel(epochs=2))
    >>> pipeline.fit(X[:150], y[:150], validation_data=(X[150:], y[150:])).predict_cdf(X, [1.0]).shape
    (200, 1)
    """

    def fit(self, X: Any, y: Any = None, validation_data: Any = None, **params: Any) -> Self:
        """Fit all steps; `validation_data` is ``(X, y)`` or ``(X, y, sample_weight)`` with X as it comes."""
        if validation_data is None:
            return super().fit(X, y, **params)  # type: ignore[no-any-return]  # scikit-learn has no types
        last = self.steps[-1][0]
        before = Pipeline(self.steps[:-1], memory=self.memory).fit(X, y)
        features, *others = validation_data
        prepared = (before.transform(features), *others)
        # As above: scikit-learn has no types.
        return super().fit(X, y, **params, **{f"{last}__validation_data": prepared})  # type: ignore[no-any-return]

    @property
    def last_time_(self) -> float:
        """As `SurvivalModel.last_time_`."""
        return float(self.steps[-1][1].last_time_)

    def _predict_with(self, name: str, X: Any, *arguments: Any, **options: Any) -> Any:
        prepared = self[:-1].transform(X) if len(self.steps) > 1 else X
        return getattr(self.steps[-1][1], name)(prepared, *arguments, **options)

    @available_if(_last_has("predict_survival_function"))
    def predict_survival_function(self, X: Any, times: Any = None, **options: Any) -> Any:
        """As `SurvivalModel.predict_survival_function`."""
        return self._predict_with("predict_survival_function", X, times, **options)

    @available_if(_last_has("predict_cdf"))
    def predict_cdf(self, X: Any, times: Any, **options: Any) -> Any:
        """As `SurvivalModel.predict_cdf`."""
        return self._predict_with("predict_cdf", X, times, **options)

    @available_if(_last_has("predict_quantile"))
    def predict_quantile(self, X: Any, p: Any, **options: Any) -> Any:
        """As `SurvivalModel.predict_quantile`."""
        return self._predict_with("predict_quantile", X, p, **options)

    @available_if(_last_has("predict_median"))
    def predict_median(self, X: Any, **options: Any) -> Any:
        """As `SurvivalModel.predict_median`."""
        return self._predict_with("predict_median", X, **options)

    @available_if(_last_has("predict_distribution"))
    def predict_distribution(self, X: Any) -> Any:
        """As `SurvivalModel.predict_distribution`."""
        return self._predict_with("predict_distribution", X)

    @available_if(_last_has("d_calibration"))
    def d_calibration(self, X: Any, y: Any, **options: Any) -> Any:
        """As `SurvivalModel.d_calibration`."""
        return self._predict_with("d_calibration", X, y, **options)


def make_survival_pipeline(*steps: Any) -> SurvivalPipeline:
    """Return a `SurvivalPipeline` of these steps, named as scikit-learn's ``make_pipeline`` names them."""
    return SurvivalPipeline(make_pipeline(*steps).steps)
