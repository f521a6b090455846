"""Validation of any survival model on new rows: figures with intervals, pictures, a report."""
