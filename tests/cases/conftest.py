from itertools import islice

import pytest

from casebook import load_case


@pytest.fixture(scope="module")
def corpus(request):
    """Demonstrations of the case whose folder the tests are in."""
    return list(islice(load_case(request.path.parent.name).demonstrations(0), 4000))
