"""Arms x seeds become records, and records are replayed: does today's code still do this?"""

from casebook.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, {"arms": "read_arms run_experiments"})
