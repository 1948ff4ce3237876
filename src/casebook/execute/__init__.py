"""Run the notebooks headless, in order, and keep what succeeded.

series       which notebooks run, one after the other in a case, cases at the same time
names        what a notebook's file name says: number, stage, case
parameters   what is asked for on the command line against each notebook's own parameters
kernel       the process of one notebook
normalise    an executed copy as it is committed
colab        the install cell that every notebook begins with
rebuild      the pages, renewed while notebooks run
"""

from casebook.execute.colab import install_cell, variant_of, write_install_cells
from casebook.execute.names import STAGES, START, group_of, number_of, select, stage_of
from casebook.execute.normalise import normalise
from casebook.execute.parameters import check_parameters
from casebook.execute.rebuild import Rebuilder
from casebook.execute.series import Result, execute, read_status

__all__ = [
    "STAGES",
    "START",
    "Rebuilder",
    "Result",
    "check_parameters",
    "execute",
    "group_of",
    "install_cell",
    "normalise",
    "number_of",
    "read_status",
    "select",
    "stage_of",
    "variant_of",
    "write_install_cells",
]
