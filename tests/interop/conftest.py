"""What is imported by the test that needs it, and not when tests are collected."""

collect_ignore = ["judge.py"]
