"""One self-contained HTML page: text, tables and interactive pictures, without a network; see README.md."""
