# Every target makes what it needs, on a machine that has only Python 3.11+ and make.
# PYTHON=... names the Python to use; ARGS=... is handed to the command behind the target.
# Commands are not echoed and set-up talks on standard error: standard output is the command's own.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo quick test deep lint bench bench-hosts bench-queues bench-telemetry scale instructions examples nights mutation transcripts house docs fmt audit sbom lock

CORE := tests/tidy tests/unit/model tests/unit/journal tests/unit/engine tests/hard_cases tests/conformance
IN := @sh scripts/python scripts/environment.py

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: ## a refund desk that is killed again and again
	$(IN) demo beforehand demo $(ARGS)
	@command -v beforehand >/dev/null || echo "These commands work in this shell after: . .venv/bin/activate" >&2

examples: ## run every example; one line each
	$(IN) dev python -m examples $(ARGS)

quick: ## unit tests of the core and tidy rules: a minute
	$(IN) dev pytest -q -n logical --dist worksteal -m "not deep and not slow" $(or $(ARGS),$(CORE))

test: ## everything deterministic once, on all cores
	@sh scripts/python scripts/system_packages.py
	$(IN) --prepare test
	$(IN) dev pytest -n auto --dist worksteal --costs-file=.costs.json $(ARGS)

deep: ## the same in depth, drawn afresh; MINUTES= ONLY= SEED=
	@sh scripts/python scripts/system_packages.py
	$(IN) --prepare $(if $(findstring hosts,$(or $(ONLY),hosts)),deep,test)
	$(IN) dev python -m scripts.deep --minutes $(or $(MINUTES),30) $(if $(ONLY),--only '$(ONLY)') $(if $(DRAW),--draw $(DRAW)) $(if $(SEED),--seed $(SEED)) -- $(ARGS)

lint: ## format, lint, types and known vulnerabilities
	$(IN) dev ruff format --check .
	$(IN) dev ruff check .
	$(IN) dev mypy
	$(IN) dev pyright
	$(IN) audit python scripts/audit.py

audit: ## compare the locked dependencies with known faults
	$(IN) audit python scripts/audit.py

sbom: ## list what each distribution holds, as CycloneDX JSON
	$(IN) dev true
	$(IN) audit python scripts/sbom.py

lock: ## write scripts/*.lock anew; ARGS=--upgrade: newer versions
	@sh scripts/python scripts/lock.py $(ARGS)

bench: ## measure against raw SQLite and the peers
	$(IN) bench python bench/compare.py $(ARGS)

bench-hosts: ## measure agents of frameworks with and without Beforehand
	$(IN) bench-hosts python bench/hosts.py $(ARGS)

bench-queues: ## measure submissions, and looks for work under limits
	$(IN) dev python bench/queues.py $(ARGS)

bench-telemetry: ## measure traced steps beside untraced ones
	$(IN) dev python bench/telemetry.py $(ARGS)

scale: ## measure a journal of 1,000,000 operations
	$(IN) bench python bench/scale.py $(ARGS)

instructions: ## count a step's instructions, where valgrind is installed
	$(IN) dev python bench/instructions.py $(ARGS)

nights: ## draw 100 bad nights of 5,000 runs, as a page; 10 minutes
	$(IN) dev python -m examples.night $(ARGS)

transcripts: ## compare what 4,000 seeds do with an older tree
	$(IN) dev python -W ignore -m simulator.transcripts $(or $(ARGS),compare)

house: ## measure how easily the code base is read
	$(IN) dev python -m scripts.house

mutation: ## mutate the decisions and the transition tables
	$(IN) dev python scripts/mutation.py $(ARGS)

docs: ## build the documentation into site/; no broken link
	$(IN) docs zensical build --clean --strict $(ARGS)

fmt: ## format and fix what can be fixed
	$(IN) dev ruff check --fix-only .
	$(IN) dev ruff format .
