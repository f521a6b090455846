"""Hostile input for every public function and file format: ``python -m tests.fuzz``."""
