"""Commands on several processes: the first one speaks and writes, the others help it to train."""

import os


def is_helper() -> bool:
    """Whether torchrun started this process beside a first one, which does the talking."""
    return os.environ.get("RANK", "0").strip() not in {"", "0"} and bool(os.environ.get("MASTER_ADDR"))
