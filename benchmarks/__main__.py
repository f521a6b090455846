"""Run every benchmark that this machine can run, each in a process of its own."""

import pkgutil
import subprocess
import sys

import benchmarks

for module in sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__)):
    if module.startswith("_") or module == "measure":
        continue
    print(f"\n===== python -m benchmarks.{module} =====", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{module}"], check=False)
