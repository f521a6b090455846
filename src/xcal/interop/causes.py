"""Models of one cause each, put together into one of several causes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from xcal._checks import FloatArray, fail
from xcal.interop.predictions import ModelPredictions, Rows, from_own_times, take_rows
from xcal.metrics.curves import Interpolation, fraction, left_column
from xcal.metrics.inputs import Vector

Read = Callable[[Any, Any, Rows], ModelPredictions]

_LEAST = float(np.finfo(np.float64).tiny)


# Rows that are read together: of so few every model gives all of its times.
_FEW_ROWS = 1000

# Pieces of a step between two times, in which hazards keep their ratio.
_PIECES = 8


def models_by_cause(model: Any, is_model: Callable[[Any], bool]) -> dict[str, Any] | None:
    """Return models of one cause each by the names or numbers of their causes; None for anything else."""
    if isinstance(model, Mapping):
        if not model:
            fail("model", "a model for each cause", "an empty mapping")
        return {str(name): one for name, one in model.items()}
    if isinstance(model, list | tuple) and len(model) > 0 and all(map(is_model, model)):
        return {str(k): one for k, one in enumerate(model, 1)}
    return None


def put_together(models: dict[str, Any], X: Any, rows: Rows, read: Read) -> ModelPredictions:
    r"""Read models of one cause each as one of all of these causes.

    A model that gives the incidence of its cause is taken as it is. One that gives a survival curve was fitted with the
    other causes as censored, and tells the hazard of its cause, :math:`d\Lambda_k = -d \log S_k`. With these

    .. math:: F_k(t) = \int_0^t S(u-) \, d\Lambda_k(u), \qquad S(t) = \prod_{u \le t} (1 - \sum_k d\Lambda_k(u)).
    """
    names = tuple(models)
    first = slice(0, 1)

    def each(part: slice, times: Vector | None) -> list[ModelPredictions]:
        few, features = rows.take(part, times), None if X is None else take_rows(X, part)
        return [read(model, features, few) for model in models.values()]

    own_first = each(first, None)
    kinds = {found.incidence is None for found in own_first}
    for name, found in zip(names, own_first, strict=True):
        if found.times is None or (found.incidence is not None and found.incidence.shape[1] != 1):
            expected = "a model of one cause: its incidence, or survival with the other causes as censored"
            fail(f"model[{name!r}]", expected, found.model)
    if len(kinds) > 1:
        fail("model", "models that all give incidences, or all survival with other causes as censored", "both kinds")
    steps = all(found.interpolation == "previous" for found in own_first)
    # Hazards that run on are divided in small steps, of which the last of each few is kept.
    asked, last = (None, 1) if steps else (_divided(rows.grid()), _PIECES)
    own = np.unique(np.concatenate([found.times for found in own_first])) if asked is None else asked[last - 1 :: last]

    def predict(part: slice) -> FloatArray:
        pieces = []
        for start in range(part.start, part.stop, _FEW_ROWS):
            few = slice(start, min(start + _FEW_ROWS, part.stop))
            curves = np.stack([_curves_at(one, own if asked is None else asked) for one in each(few, asked)], axis=1)
            found = curves if kinds == {False} else _incidences(curves, steps=steps)
            pieces.append(found[:, :, last - 1 :: last])
        return np.concatenate(pieces)

    libraries = tuple(dict.fromkeys(found.library for found in own_first))
    kind = " and ".join(dict.fromkeys(found.model for found in own_first))
    name = f"{kind} by cause"
    origin = f"The incidences are those of one model for each cause ({kind}), at {own.size:,} times."
    if kinds == {True}:
        origin = (
            f"The incidences are put together from one model for each cause ({kind}), fitted with the other causes as "
            f"censored: their hazards give the probability of no event and the incidence of each cause at "
            f"{own.size:,} times."
        )
    how: Interpolation = "previous" if steps else "linear"
    found = from_own_times(name, " and ".join(libraries), predict, own, rows, how, origin, names)
    ends = [one.end for one in own_first if one.end is not None]
    return replace(found, end=min(ends) if ends else None)


def _curves_at(found: ModelPredictions, own: Vector) -> FloatArray:
    """Return incidences, or survival curves where there are none, at times of all models."""
    assert found.times is not None
    curves = found.survival if found.incidence is None else 1 - found.incidence[:, 0]
    assert curves is not None
    left = left_column(found.times, own)
    whole = np.concatenate([np.ones((found.n, 1)), curves], axis=1)
    value = whole[:, left + 1].astype(np.float64)
    if found.interpolation == "linear":
        share = fraction(found.times, own, left)
        value = (1 - share) * value + share * whole[:, np.minimum(left + 2, found.times.size)]
    return value if found.incidence is None else 1 - value


def _divided(grid: Vector) -> Vector:
    """Return the times that divide each step of a grid, from 0 on, into pieces of the same length."""
    ends = np.append(0.0, grid) if grid[0] > 0 else grid
    parts = np.arange(1, _PIECES + 1) / _PIECES
    inner = (ends[:-1, None] + np.diff(ends)[:, None] * parts).ravel()
    inner[_PIECES - 1 :: _PIECES] = ends[1:]
    return inner


def _incidences(curves: FloatArray, *, steps: bool) -> FloatArray:
    """Put hazards together, from curves of each cause, shape (n, causes, m): incidences of the same shape."""
    before = np.concatenate([np.ones((*curves.shape[:2], 1)), curves[..., :-1]], axis=2)
    # A survival of zero has no hazard after it: what is left there comes at once.
    hazards = -np.log(np.maximum(np.divide(curves, before, out=np.ones_like(curves), where=before > 0), _LEAST))
    of_any = hazards.sum(axis=1)
    # Of step functions the part of those at risk that has an event is the sum of the hazards, no more than 1; of
    # hazards that run on between the times it is 1 - exp(-sum), divided as they are.
    lost = np.minimum(of_any, 1.0) if steps else -np.expm1(-of_any)
    left = np.cumprod(1 - lost, axis=1)
    comes = np.concatenate([np.ones((len(left), 1)), left[:, :-1]], axis=1) * lost
    share = np.divide(hazards, of_any[:, None], out=np.zeros_like(hazards), where=of_any[:, None] > 0)
    return np.cumsum(share * comes[:, None], axis=2)


def named_as(found: ModelPredictions, causes: tuple[str, ...]) -> ModelPredictions:
    """Return predictions whose causes have the names, and the order, of those of the rows.

    A model knows its causes by these names or by the numbers 1, 2, ... of them.
    """
    if found.incidence is None or found.causes == causes:
        return found
    numbers = {str(k): name for k, name in enumerate(causes, 1)}
    own = [one if one in causes else numbers.get(one, "") for one in found.causes]
    if "" in own or len(set(own)) < len(own):
        named = "" if causes == tuple(numbers) else f", or their numbers 1 to {len(causes)}"
        fail("model", f"causes among those of y: {', '.join(causes)}{named}", ", ".join(found.causes))
    order = sorted(range(len(own)), key=lambda k: causes.index(own[k]))
    return replace(found, incidence=found.incidence[:, order], causes=tuple(own[k] for k in order))
