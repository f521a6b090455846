"""Import time. Claim: what trains and measures takes under twice the time of importing torch; `import xcal` nothing."""

import statistics
import subprocess
import sys

CODE = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def main() -> None:
    taken: dict[str, list[float]] = {"torch": [], "xcal.training, xcal.metrics": [], "xcal": []}
    for _ in range(7):
        for name, times in taken.items():
            command = [sys.executable, "-c", CODE.format(name)]
            times.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, seconds in medians.items():
        print(f"import {name}: {seconds:.3f} s, {seconds / medians['torch']:.2f} of torch")


if __name__ == "__main__":
    main()
