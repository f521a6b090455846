"""One command per claim of speed or memory: ours and the peer's side by side in one run, printed as a ratio.

``python -m benchmarks`` runs all of them, ``python -m benchmarks.penalty`` one.
"""
