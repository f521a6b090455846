"""The table of metrics is whole: what one part names, the others have."""

import pytest

from xcal.calibration import DCalibration
from xcal.metrics import streaming
from xcal.metrics.spec import METRICS, NAMES, VALUES, beside


def test_every_value_that_a_metric_gives_has_a_line_under_one_name():
    given = [value for metric in METRICS.values() for value in metric.gives]
    assert len(given) == len(set(given))
    assert [value for value in given if value not in VALUES] == []
    assert all(name == metric.gives[0] for name, metric in METRICS.items())
    assert all(name == value.metric for name, value in VALUES.items())
    assert set(NAMES) == {v for m in METRICS.values() if m.evaluated for v in m.gives if VALUES[v].evaluated}


def test_what_belongs_to_a_metric_comes_with_it():
    assert NAMES["ici"][:2] == ("ici", "ici_floor")
    assert {"e50", "emax_floor"} <= set(NAMES["ici"])
    assert NAMES["e50"] == ("e50", "e50_floor")
    assert (beside("ici", "p_corrected"), beside("oe", "sites"), beside("oe", "floor")) == (
        "ici_p_corrected",
        "oe_sites",
        "",
    )


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_line_agrees_with_itself(value):
    assert value.hint
    assert value.good is None or value.good[0] <= value.perfect <= value.good[1]
    assert not value.main or (value.better and value.compared)
    assert value.better == 0 or value.perfect is None or value.perfect == max(value.better, 0)
    assert value.of == "" or value.of in VALUES
    assert value.role is None or (value.of and value.metric == beside(value.of, value.role))


def test_what_merges_is_public():
    known = {getattr(streaming, name) for name in streaming.__all__} | {DCalibration}
    assert {metric.accumulator for metric in METRICS.values()} - {None} <= known
