"""A page in the browser for those who do not write Python: drop a table or a saved model, and get a report.

Everything that the page does is a command of `xcal` that it shows. It runs on this machine and sends nothing.
"""
