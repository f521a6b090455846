"""From a table in a file to a trained model with its reports: the work behind fit, predict, evaluate and report."""
