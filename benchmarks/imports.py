"""Import time. Claim: importing xcal takes under twice the time of importing torch."""

import statistics
import subprocess
import sys

CODE = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def main() -> None:
    taken: dict[str, list[float]] = {"torch": [], "xcal": []}
    for _ in range(7):
        for name, times in taken.items():
            command = [sys.executable, "-c", CODE.format(name)]
            times.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    torch, xcal = (statistics.median(times) for times in taken.values())
    print(f"import torch {torch:.2f} s, import xcal {xcal:.2f} s: ratio {xcal / torch:.2f}")


if __name__ == "__main__":
    main()
