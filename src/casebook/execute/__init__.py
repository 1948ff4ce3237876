"""Run the notebooks headless, in order, and keep what succeeded.

series       which notebooks run, one after the other in a case, cases at the same time
notebooks    what a notebook's file name says, and its parameters
normalise    an executed copy as it is committed
colab        the install cell that every notebook begins with
"""

from casebook.execute.colab import install_cell, variant_of, write_install_cells
from casebook.execute.normalise import normalise
from casebook.execute.notebooks import check_parameters, group_of, select, stage_of
from casebook.execute.series import Result, execute, read_status

__all__ = [
    "Result",
    "check_parameters",
    "execute",
    "group_of",
    "install_cell",
    "normalise",
    "read_status",
    "select",
    "stage_of",
    "variant_of",
    "write_install_cells",
]
