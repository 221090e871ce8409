# Every target makes what it needs, on a machine that has only Python 3.11+ and make.
# PYTHON=... names the Python to use; ARGS=... is handed to the command behind the target.
# Commands are not echoed and set-up talks on standard error: standard output is the command's own.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo quick test deep lint bench bench-hosts bench-queues bench-telemetry scale instructions examples nights mutation house docs fmt audit sbom lock

CORE := tests/tidy tests/unit/model tests/unit/journal tests/unit/engine tests/hard_cases tests/conformance
IN := @sh scripts/python scripts/environment.py

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: ## a refund desk that is killed again and again, with Beforehand and without
	$(IN) demo beforehand demo $(ARGS)

examples: ## run every example; one line each
	$(IN) dev python -m examples $(ARGS)

quick: ## unit tests of the core, conformance in memory, tidy rules: a minute, before each commit
	$(IN) dev pytest -q -n logical --dist worksteal -m "not deep and not slow" $(or $(ARGS),$(CORE))

test: ## everything deterministic once, on all cores; installs the system packages that tests need where it may
	@sh scripts/python scripts/system_packages.py
	$(IN) --prepare test
	$(IN) dev pytest -n auto --dist worksteal --costs-file=.costs.json $(ARGS)

deep: ## the same in depth, drawn afresh, for MINUTES=30; ONLY=hosts,crash names parts; SEED=42 tells one simulated seed
	@sh scripts/python scripts/system_packages.py
	$(IN) --prepare $(if $(findstring hosts,$(or $(ONLY),hosts)),deep,test)
	$(IN) dev python -m scripts.deep --minutes $(or $(MINUTES),30) $(if $(ONLY),--only '$(ONLY)') $(if $(DRAW),--draw $(DRAW)) $(if $(SEED),--seed $(SEED)) -- $(ARGS)

lint: ## format, lint, types and known vulnerabilities
	$(IN) dev ruff format --check .
	$(IN) dev ruff check .
	$(IN) dev mypy
	$(IN) dev pyright
	$(IN) audit python scripts/audit.py

audit: ## compare the locked dependencies with known vulnerabilities; skipped without a network
	$(IN) audit python scripts/audit.py

sbom: ## list what the environment and each distribution hold, as CycloneDX JSON, in dist/
	$(IN) dev true
	$(IN) audit python scripts/sbom.py

lock: ## write every scripts/*.lock anew, with hashes; ARGS=--upgrade takes newer versions
	@sh scripts/python scripts/lock.py $(ARGS)

bench: ## measure against raw SQLite and the peers; fails below a goal
	$(IN) bench python bench/compare.py $(ARGS)

bench-hosts: ## measure agents of frameworks with Beforehand beside what the frameworks offer, and the ready loop
	$(IN) bench-hosts python bench/hosts.py $(ARGS)

bench-queues: ## measure submissions beside raw inserts, and looks for work with all limits beside none
	$(IN) dev python bench/queues.py $(ARGS)

bench-telemetry: ## measure traced steps beside steps without telemetry, and beside the SDK's own part
	$(IN) dev python bench/telemetry.py $(ARGS)

scale: ## build a journal of 1,000,000 operations and measure what must not slow down as work grows
	$(IN) bench python bench/scale.py $(ARGS)

instructions: ## count a step's instructions with callgrind; skipped without valgrind
	$(IN) dev python bench/instructions.py $(ARGS)

nights: ## draw 100 bad nights of 5,000 runs and print what the monitors find of them, as a page (10 minutes on two free cores)
	$(IN) dev python -m examples.night $(ARGS)

house: ## measure how easily the code base is read; fails where a measure has grown
	$(IN) dev python -m scripts.house

mutation: ## mutate the decisions and the transition tables; fails on an unexplained survivor
	$(IN) dev python scripts/mutation.py $(ARGS)

docs: ## build the documentation into site/; fails on a broken link
	$(IN) docs zensical build --clean --strict $(ARGS)

fmt: ## format and fix what can be fixed
	$(IN) dev ruff check --fix-only .
	$(IN) dev ruff format .
