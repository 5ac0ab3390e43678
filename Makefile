# Everything a newcomer needs. `make` alone lists the targets; set-up happens by itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := build/bench-site
PARTS := .[torch,hf,nvidia,ncu,onnx,docs,test]

.DEFAULT_GOAL := help
.PHONY: help setup demo test golden check bench docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install ridgeline with all its parts

demo: $(STAMP) ## Analyze ResNet-18 and MobileNetV2 on the CPU; ends with the path of the report
	$(BIN)/ridgeline analyze resnet18 mobilenet_v2 --quick --backend cpu --results results/demo

test: $(STAMP) ## Run the tests
	$(BIN)/python -m pytest -n 2

golden: $(STAMP) ## Compare counts, views and commands with what is stored in tests/golden; about ten minutes
	$(BIN)/python -m tests.golden.freeze

check: $(STAMP) ## Lint, formatting and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict src tests benchmarks

bench: $(STAMP) $(PEERS)/.installed ## Run the benchmarks, beside other counters; takes about an hour
	$(BIN)/python -m benchmarks

docs: $(STAMP) ## Build the documentation into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean: ## Remove what was built: environment, caches, documentation; results stay
	rm -rf $(VENV) build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests docs benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is newer than its inputs only after a whole installation, so a killed one starts again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ridgeline needs Python 3.11 or later, and '$(PYTHON)' is not that." >&2; \
	  echo "  hint: name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed." >&2; \
	  echo "  hint: some systems package it apart, as python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV); the first time this takes a few minutes"
	@{ $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv \
	  && $(BIN)/python -m uv pip install --python $(BIN)/python --compile-bytecode -c constraints.txt -e '$(PARTS)'; } \
	  || { echo "uv did not succeed, trying pip" >&2; \
	       $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '$(PARTS)'; }
	@touch $@

# The counters we are compared with stay out of .venv: transformers changes with what it finds there.
# One that cannot be installed is named in the tables; the stamp waits until all of them are there.
$(PEERS)/.installed: pyproject.toml constraints.txt | $(STAMP)
	@rm -rf $(PEERS) && mkdir -p $(PEERS)
	@$(BIN)/python -m benchmarks --peers > $(PEERS)/peers.txt
	@$(BIN)/python -m uv pip install --python $(BIN)/python --target $(PEERS) --no-deps -c constraints.txt \
	    -r $(PEERS)/peers.txt && touch $@ \
	  || { echo "uv did not succeed, trying pip, one by one" >&2; \
	       while read -r peer; do \
	         $(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(PEERS) --no-deps \
	           -c constraints.txt "$$peer" || echo "not installed: $$peer" >&2; \
	       done < $(PEERS)/peers.txt; }
