"""A table small enough for a test."""

import pytest
from benchmarks._small_table import small_table


@pytest.fixture
def small(tmp_path):
    """A function that writes a small spec, changed by (old, new) pairs of text, and returns its path."""

    def write(*changes, kind="path", job="model", name="small.toml"):
        text = small_table(kind=kind, job=job)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
