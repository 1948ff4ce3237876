"""Becomes Unsloth itself: imported, changed where it wants a GPU (`beside/loading.py`), left there.

While it is imported there is no vLLM and no bitsandbytes, whose stand-ins would be taken to pieces;
afterwards there are. `STANDIN_RECORD=1` imports nothing and loads nothing: calls alone are checked.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

HERE = str(Path(__file__).parents[1])
place = sys.path.index(HERE)
if os.environ.get("STANDIN_RECORD") == "1":
    sys.path[place] = f"{HERE}/beside"
    from loading import Calls as FastLanguageModel  # noqa: F401
else:
    del sys.path[place], sys.modules["unsloth"]
    os.environ |= {
        "UNSLOTH_ALLOW_CPU": "1",  # Unsloth's own switch for tests: CUDA branches without a device
        "UNSLOTH_COMPILE_DISABLE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
    }
    unsloth = import_module("unsloth")
    sys.path.insert(place, f"{HERE}/beside")
    import_module("loading").without_gpu(unsloth)
