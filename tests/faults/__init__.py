"""Kills at random moments: ``python -m tests.faults.kills`` and ``python -m tests.faults.sweep_kills``."""
