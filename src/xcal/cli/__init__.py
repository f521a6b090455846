"""The command line: one module a command, each importing what it runs only when it runs."""
