"""Stands where pip would: `python -m pip install …` on the pretended machine."""
