"""Pieces of work on a Ray cluster, merged by Ray Data's aggregation."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xcal._engines import cluster
from xcal.metrics.streaming.accumulator import State
from xcal.outofcore.local import Work, piece_state
from xcal.outofcore.reading import Piece


@contextmanager
def started() -> Iterator[None]:
    """Use the cluster at RAY_ADDRESS, one that was started before, or a new one on this machine for this run."""
    with cluster():
        settings = _ray_data().DataContext.get_current()
        before, settings.enable_progress_bars = settings.enable_progress_bars, False
        try:
            yield
        finally:
            settings.enable_progress_bars = before


def _ray_data() -> Any:
    """Ray Data; an installation of Ray alone does not have what it needs."""
    try:
        import ray.data
    except ImportError as error:
        raise ImportError('engine: "ray" needs Ray Data: pip install "xcal[ray]"') from error
    return ray.data


def _no_error(_: Any) -> Any:
    return ""


def on_ray(work: Work, pieces: dict[int, Piece]) -> State:
    """Return the merged state of all pieces: each is counted by a task, and the states are added up where they are.

    The files must be where every machine can read them, under the same path.
    """
    data = _ray_data()
    from ray.data.aggregate import AggregateFn

    def counted(row: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"state": pickle.dumps(piece_state(work, pieces[row["piece"]])), "error": ""}
        except (ValueError, OSError) as error:  # said once, in our own words, not in a traceback of a cluster
            return {"state": b"", "error": str(error)}

    def merged(one: bytes, other: bytes) -> bytes:
        if not one or not other:
            return one or other
        total = work[0]().load_state_dict(pickle.loads(one)).merge(pickle.loads(other))
        return pickle.dumps(total.state_dict())

    merge: Any = AggregateFn(
        init=lambda _: b"",
        accumulate_row=lambda total, row: merged(total, row["state"]),
        merge=merged,
        name="state",
    )
    first_error: Any = AggregateFn(
        init=_no_error,
        accumulate_row=lambda error, row: error or row["error"],
        merge=lambda one, other: one or other,
        name="error",
    )
    rows = data.from_items([{"piece": number} for number in pieces], override_num_blocks=len(pieces))
    found = rows.map(counted).aggregate(merge, first_error)
    if found["error"]:
        raise ValueError(found["error"])
    state: State = pickle.loads(found["state"])
    return state
