"""Run every benchmark that this machine can run."""

import importlib
import pkgutil

import benchmarks

for module in sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__)):
    if module in ("__main__", "measure"):
        continue
    print(f"\n===== python -m benchmarks.{module} =====")
    importlib.import_module(f"benchmarks.{module}").main()
