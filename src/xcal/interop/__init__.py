"""Models and curves of other libraries, each behind its own lazy import."""
