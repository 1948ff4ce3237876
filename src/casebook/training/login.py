"""Weights & Biases: online for who is logged in, offline for everybody else."""

import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit

SERVER = "https://api.wandb.ai"


def prepare_wandb(folder: Path) -> None:
    """Say where wandb writes, and that nobody's login is waited for.

    `WANDB_MODE` and `WANDB_DIR` stay as they are where somebody set them.
    """
    if not logged_in():
        os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_DIR", str(folder))


def logged_in() -> bool:
    """Whether a login is here: in `WANDB_API_KEY`, or in the netrc file that `wandb login` writes.

    The server is that of `WANDB_BASE_URL`, by default wandb's own. Nothing is sent to it.
    """
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or SERVER).hostname
    named = os.environ.get("NETRC")
    for file in [Path(named)] if named else [Path("~/.netrc"), Path("~/_netrc")]:
        try:
            if host and netrc.netrc(file.expanduser()).hosts.get(host):
                return True
        except (OSError, netrc.NetrcParseError, RuntimeError):  # none there, damaged, no home
            continue
    return False
