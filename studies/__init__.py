"""Science with records: one command per question, ``python -m studies.size`` for example; README.md is the index."""
