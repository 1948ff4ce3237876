"""Runs that are recorded: arms x seeds, their replay, a run as one file, the embedded bases."""
