"""RLVR Casebook: four write-ups on verifiable rewards and GRPO, checked.

Data flows along one line: oracle -> rows (`prompt`, `answer`) -> model -> completions
-> grade -> rewards and metrics -> record -> report.
"""

import os
import warnings

# A second torch thread beside any other busy process slows small models down up to 200 times.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# tqdm, which datasets imports, misses a widget library that no page here needs.
warnings.filterwarnings("ignore", message="IProgress not found")

from casebook.case import Case, CasebookError, Grade, load_case

__all__ = ["Case", "CasebookError", "Grade", "load_case"]
__version__ = "0.1.0"
