"""The metrics on rows that count several times or not at all: resamples without sorting and without copying curves.

Each file holds the core of some metrics for a `Block` of resamples. Rows stand in the order of their times once and
for all, and what depends on predictions alone (orders, ties, bins) is worked out once. Every core is held to the public
function of its metric, on rows repeated as often as they count, by ``tests/validation/test_counted.py``.
"""
