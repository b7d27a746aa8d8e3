# Two commands: `make quickstart` runs the main job, `make test` runs the tests. Each sets everything up.
PYTHON ?= python3
BIN := .venv/bin

# The tests that docs/reliability.md describes.
FAULTS := $(addprefix tests/cli/test_,$(addsuffix .py,command_lines configs full_disk hostile_configs \
	pipes places_to_write reading_verbs serving stopped_fit tampered_checkpoints terminal traps)) \
	$(addprefix tests/export/test_,$(addsuffix .py,correct_models defects graph_files page_json reach statements)) \
	$(addprefix tests/runtime/test_,$(addsuffix .py,engine mutated_bundles refusals serve shown)) tests/data/test_deep_json.py \
	tests/data/test_oddities.py tests/data/test_read_as_something_else.py tests/callbacks/test_exact_resume.py tests/callbacks/test_stopping.py tests/tracking

.PHONY: quickstart test test-ci test-all scale faults mutants processors lint benchmarks leaderboard crossing docs cpp cpp-test cpp-docs web gallery release clean
.DEFAULT_GOAL := quickstart

quickstart: .venv/installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash scripts/quickstart.sh

test: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-ci: .venv/installed
	bash scripts/processors.sh today
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow or today"

test-all: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

scale: .venv/installed
	$(BIN)/python -m pytest tests/scale

faults: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal $(FAULTS)

mutants: .venv/installed
	$(BIN)/python scripts/mutate.py

processors: .venv/installed
	bash scripts/processors.sh

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror $(wildcard export/runtime/*/*.cc export/runtime/*/*.h export/runtime/*/*/*.h)
	$(BIN)/mypy
	test ! -d export/web/node_modules || npm --prefix export/web run --silent lint

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

cpp:
	cmake -S export/runtime -B build/cpp -G Ninja
	cmake --build build/cpp --parallel 2

cpp-test:
	cmake -S export/runtime -B build/cpp-address-undefined -G Ninja -DSEQLAB_SANITIZE=address,undefined
	cmake --build build/cpp-address-undefined --parallel 2 --target unit_tests fuzz
	ctest --test-dir build/cpp-address-undefined --output-on-failure

cpp-docs:
	mkdir -p build
	cd export/runtime && doxygen

web:
	cd export/web && npm ci && npm run check && npm run build && \
		node page/build.mjs ../seqlab_export/page/template.html

release: .venv/installed
	bash scripts/release.sh

gallery: .venv/installed web
	$(BIN)/python scripts/gallery.py

benchmarks: .venv/installed
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

leaderboard: .venv/installed
	$(BIN)/python scripts/leaderboard.py $(if $(SHAKESPEARE),--shakespeare $(SHAKESPEARE))

crossing: .venv/installed
	$(BIN)/python scripts/crossing.py $(if $(WIKITEXT),--wikitext $(WIKITEXT))

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("seqlab needs Python 3.11 or later") if sys.version_info < (3, 11) else None'
	@echo "installing seqlab and what it needs into .venv: 2 GB, a few minutes the first time"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check --constraint constraints.txt torch==2.13.0 --editable '.[dev,docs]'
	@touch $@

clean:
	rm -rf .venv bundles build
	find mlruns -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
