#!/usr/bin/env bash
# Tests with the NumPy and pandas of Colab's image (image.yaml), which are older than the pins here:
#
#     tests/colab/older_libraries.sh                  the tests that take seconds
#     tests/colab/older_libraries.sh tests/records    those that are named
#
# Makes an environment in $OLDER (by default .venv-older) that sees the packages of .venv beside
# them. It needs a package index, so it is a script and no test.
set -euo pipefail
cd "$(dirname "$0")/../.."
main=${CASEBOOK_PYTHON:-.venv/bin/python}
older=${OLDER:-.venv-older}
version() { sed -n "s/^  $1: \"\(.*\)\"/\1/p" tests/colab/image.yaml; }

if ! [ -x "$older/bin/python" ]; then
    "$main" -m venv --without-pip "$older"
    own=$("$older/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$main" -c 'import sysconfig
print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$own/main.pth"
    "$main" -m pip --python "$older/bin/python" install -q --no-deps --ignore-installed \
        "numpy==$(version numpy)" "pandas==$(version pandas)" "pytz==$(version pytz)"
fi
"$older/bin/python" -c 'import numpy, pandas; print("NumPy", numpy.__version__, "pandas", pandas.__version__)'
exec "$older/bin/python" -m pytest -q -p no:cacheprovider -m 'not slow and not heavy' "$@"
