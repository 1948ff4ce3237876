"""The layers that PEFT looks for."""

import torch


class Linear4bit(torch.nn.Linear):
    """No layer of a tiny model is one."""


class Linear8bitLt(torch.nn.Linear):
    """No layer of a tiny model is one."""


class Params4bit(torch.nn.Parameter):
    """No weight of a tiny model is one."""
