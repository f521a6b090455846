"""Whether a model was fitted, asked in scikit-learn's way."""

from typing import Any, NoReturn

from xcal._checks import fail
from xcal.interop.gathering import class_name


def check_fitted(model: Any) -> None:
    """Refuse a scikit-learn estimator that was not fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        refuse_unfitted(model)


def refuse_unfitted(model: Any, what: str = "call its fit method on the training rows first") -> NoReturn:
    """Raise the error of a model that was not fitted, with what to do."""
    fail("model", f"a fitted {class_name(model)} ({what})", "one that was not fitted")
