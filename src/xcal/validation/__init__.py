"""Validation of any survival model on new rows: values with intervals, pictures, a report."""

from xcal.validation.audit import audit
from xcal.validation.comparison import ModelComparison, compare_models
from xcal.validation.result import AuditResult, AuditValue, Concern, DataSummary, Verdict

__all__ = [
    "AuditResult",
    "AuditValue",
    "Concern",
    "DataSummary",
    "ModelComparison",
    "Verdict",
    "audit",
    "compare_models",
]
