"""``python -m xcal``: the command line."""

from xcal.cli.app import main

main()
