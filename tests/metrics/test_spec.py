"""The table of metrics is whole: what one part names, the others have."""

import pytest

from xcal.calibration import DCalibration
from xcal.metrics import streaming
from xcal.metrics.spec import METRICS, NAMES, VALUES


def test_every_value_that_a_metric_gives_has_a_line_under_one_name():
    assert all(NAMES[name] == name for name in METRICS)
    assert [value for metric in METRICS.values() for value in metric.gives if value not in VALUES] == []
    assert all(metric == value.metric for metric, value in VALUES.items())
    columns = [value.column or value.metric for value in VALUES.values()]
    assert len(columns) == len(set(columns))


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_line_agrees_with_itself(value):
    assert value.hint
    assert value.good is None or value.good[0] <= value.perfect <= value.good[1]
    assert not value.main or (value.better and value.compared)
    assert value.better == 0 or value.perfect is None or value.perfect == max(value.better, 0)


def test_what_merges_is_public():
    known = {getattr(streaming, name) for name in streaming.__all__} | {DCalibration}
    assert {metric.accumulator for metric in METRICS.values()} - {None} <= known
