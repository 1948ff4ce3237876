"""What one notebook of the case alone needs; loading the case imports nothing of it."""
