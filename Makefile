# Every target makes what it needs, on a machine that has only Python 3.11+ and make.
# PYTHON=... names the Python to use; ARGS=... is handed to the command behind the target.
# Commands are not echoed and set-up talks on standard error: standard output is the command's own.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test check lint e2e hosts bench bench-hosts bench-queues bench-telemetry scale instructions soak-live examples sim differential mutants nights soak mutation year house docs fmt audit sbom lock

IN := @sh scripts/python scripts/environment.py

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: ## a refund desk that is killed again and again, with Holdfast and without
	$(IN) demo holdfast demo $(ARGS)

examples: ## run every example; one line each
	$(IN) dev python -m examples $(ARGS)

test: ## all tests, on all cores; installs the system packages they need where it may
	@sh scripts/python scripts/system_packages.py
	$(IN) dev pytest -n auto --dist worksteal $(ARGS)

check: lint ## format, lint, types, known vulnerabilities, the house rules and the unit tests
	$(IN) dev pytest -q -n auto tests/tidy tests/unit

lint: ## format, lint, types and known vulnerabilities; what `make check` does without tests
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

lock: ## write scripts/dev.lock anew, with hashes; ARGS=--upgrade takes newer versions; needs uv
	@sh scripts/python scripts/lock.py $(ARGS)

e2e: ## the inbox in a real browser; a part of `make test`
	@sh scripts/python scripts/system_packages.py
	$(IN) dev pytest tests/e2e $(ARGS)

hosts: ## kill agents of every framework, TRIALS=20 times a cell, and count what happened twice; fails on any
	$(IN) dev python -m scripts.hosts $(or $(TRIALS),20) $(ARGS)

bench: ## measure against raw SQLite and the peers; fails below a goal
	$(IN) bench python bench/compare.py $(ARGS)

bench-hosts: ## measure agents of frameworks with Holdfast beside what the frameworks offer, and the ready loop
	$(IN) bench-hosts python bench/hosts.py $(ARGS)

bench-queues: ## measure submissions beside raw inserts, and looks for work with all limits beside none
	$(IN) dev python bench/queues.py $(ARGS)

bench-telemetry: ## measure traced steps beside steps without telemetry, and beside the SDK's own part
	$(IN) dev python bench/telemetry.py $(ARGS)

scale: ## build a journal of 1,000,000 operations and measure what must not slow down as work grows
	$(IN) bench python bench/scale.py $(ARGS)

soak-live: ## an hour at 500 live runs whose processes are killed; effects are counted outside, memory stays flat
	$(IN) dev python bench/soak_live.py $(ARGS)

instructions: ## count a step's instructions with callgrind; skipped without valgrind
	$(IN) dev python bench/instructions.py $(ARGS)

sim: ## simulate SEEDS=2000 seeds and check every invariant, or tell the story of SEED=42; JOURNAL=sqlite on real files
	$(IN) dev python -m simulator $(if $(SEED),one $(SEED),many --seeds $(or $(SEEDS),2000)) $(if $(JOURNAL),--journal $(JOURNAL)) $(ARGS)

differential: ## simulate SEEDS=2000 seeds with the fast path and without it, and compare; or show SEED=42
	$(IN) dev python -m simulator differential $(if $(SEED),$(SEED),--seeds $(or $(SEEDS),2000)) $(ARGS)

nights: ## draw 100 bad nights of 5,000 runs and print what the monitors find of them, as a page (10 minutes on two free cores)
	$(IN) dev python -m examples.night $(ARGS)

mutants: ## plant bugs in the product and let the simulator find each; fails on a miss (20 minutes)
	$(IN) dev python -m simulator.mutations.planting $(ARGS)

house: ## measure how easily the code base is read; fails where a measure has grown
	$(IN) dev python -m scripts.house

soak: ## the tests that grow with time, at full length (hours)
	@sh scripts/python scripts/system_packages.py
	$(IN) dev pytest --soak -m soak -n auto --dist worksteal $(ARGS)

mutation: ## mutate the decisions and the transition tables; fails on an unexplained survivor
	$(IN) dev python scripts/mutation.py $(ARGS)

year: ## live simulated years with reviewers who tire, and write the page about them (10 minutes)
	$(IN) dev python scripts/year.py --write-docs $(ARGS)

docs: ## build the documentation into site/; fails on a broken link
	$(IN) docs zensical build --clean --strict $(ARGS)

fmt: ## format and fix what can be fixed
	$(IN) dev ruff check --fix-only .
	$(IN) dev ruff format .
