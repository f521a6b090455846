"""Validation of any survival model on new rows: values with intervals, pictures, a report."""

from xcal.validation.audit import audit
from xcal.validation.comparison import compare_models

__all__ = [
    "audit",
    "compare_models",
]
