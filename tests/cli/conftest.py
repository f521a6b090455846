"""The small table of the experiments, for tests of what is shown of it."""

from tests.experiments.conftest import small

__all__ = ["small"]
