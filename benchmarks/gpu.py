"""What needs a GPU, in pieces of a few minutes: a large default path, both gamma tables, one step of the MNIST network.

Claim: on one H200 a default path of 180,000 rows and 30 columns takes less than half a minute, and both gamma tables of
the paper take less than two minutes. Each piece is a process of its own, so that one that dies does not take the others
with it; its exit status and its seconds are printed behind what it says. Without names all pieces run.

    python -m benchmarks.gpu large
    python -m benchmarks.gpu convolutions
    python -m benchmarks.gpu tables
"""

import argparse
import subprocess
import sys
import tempfile
import time

import torch

PATH = ["-m", "benchmarks.path", "--sizes", "180000x30", "--device", "cuda"]
TABLES = ["-m", "xcal", "reproduce", "gamma-censored", "gamma-uncensored", "--device", "cuda", "--results"]
PIECES: dict[str, list[list[str]]] = {
    "large": [PATH],
    # Three times: what fails now and then must be seen to fail.
    "convolutions": 3 * [["-m", "benchmarks.convolutions"]],
    "tables": [[*TABLES, "{folder}/several", "--processes", "6"], [*TABLES, "{folder}/one"]],
    "phases": [["-m", "benchmarks.phases", "--epochs", "appendix"]],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="piece", help=", ".join(PIECES))
    options, _ = parser.parse_known_args()
    if not torch.cuda.is_available():
        print("needs a GPU")
        return
    for name in options.pieces or PIECES:
        for words in PIECES[name]:
            with tempfile.TemporaryDirectory() as folder:
                own = [word.format(folder=folder) for word in words]
                start = time.perf_counter()
                status = subprocess.run([sys.executable, *own], check=False).returncode
            shown = " ".join(["python", *words])
            print(f"{shown}: status {status}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
