"""One folder for each case, and the published problem sets that two of them read."""
