"""Run the fuzzer; `tests.fuzz.fuzzing` has the claim and the options."""

from tests.fuzz.fuzzing import main

if __name__ == "__main__":
    main()
