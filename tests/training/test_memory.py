"""How much memory a run took."""

import sys

import numpy as np
import pytest

from casebook.training.memory import forget_peak, peak_mb


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process's peak is not forgotten")
def test_the_peak_is_that_of_the_run_and_not_of_the_process():
    array = np.ones(200 * 2**17)  # 200 MiB
    high = peak_mb()
    del array
    forget_peak()
    low = peak_mb()
    assert low < high - 100
    array = np.ones(200 * 2**17)
    assert peak_mb() > low + 150
    del array
