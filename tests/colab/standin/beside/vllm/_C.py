"""Native code, which loads."""
