"""Is installed, as on a GPU; nothing here is quantised, and PEFT only asks whether a layer is."""

from bitsandbytes import nn

__version__ = "0.50.2"
__all__ = ["nn"]
