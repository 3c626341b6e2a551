# Enough for most: `make run`, `make test` after each change, `make test-deep` before a merge.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test test-deep lint faults soak bench bench-record bench-compare conformance reference site screenshots vendor \
  dist sbom constraints image release release-check push-images push-chart clean

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
CORES := $(shell $(PYTHON) -c 'import os; print(os.cpu_count())')

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[all]'
	touch $@

$(VENV)/.dev: $(VENV)/.ready  # what only tests and their like need
	$(PIP) -e '.[dev]'
	touch $@

run: $(VENV)/.ready  ## the adapter in front of a demo upstream, until stopped
	$(BIN)/mcp-adapter demo

# Most tests wait more than they compute. Those that measure time, all attacks among them, must not crowd the machine.
# Two runs share no cache. Status 5 of pytest: ARGS select no test of this kind.
PYTEST = $(BIN)/python -m pytest -p no:cacheprovider --dist worksteal
test: $(VENV)/.dev  ## after each change: the adapter in process, in minutes
	$(PYTEST) -n $$((2 * $(CORES))) -m 'not deep' $(ARGS) || [ $$? -eq 5 ]

test-deep: $(VENV)/.dev  ## before a merge: whole processes, other people's clients, attacks, faults, a browser
	$(PYTEST) -n $$((2 * $(CORES))) -m '(deep or examples) and not timed' $(ARGS) || [ $$? -eq 5 ]
	$(PYTEST) -n $(CORES) -m timed $(ARGS) || [ $$? -eq 5 ]

lint: $(VENV)/.dev  ## ruff and mypy --strict, over code and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

reference: $(VENV)/.ready  ## writes what is generated: settings, the order of stages, failures, metrics, dashboards
	$(BIN)/mcp-adapter config reference > docs/settings.md
	$(BIN)/python -m tests.traceability
	$(BIN)/python -m tests.metrics_table
	$(BIN)/python -m deploy.dashboards
	$(BIN)/python -m tests.troubleshooting
	$(BIN)/python -m tests.eras_table
	$(BIN)/python -m tests.llms

site: $(VENV)/.dev  ## the documentation as a static site, in build/site
	$(BIN)/python -m sphinx -W --keep-going -q -b html -c docs . build/site

conformance: $(VENV)/.dev  ## the public conformance suite, direct and through the adapter, both eras: --replicas --workers
	$(BIN)/python -m tests.e2e.conformance $(ARGS)

faults: $(VENV)/.dev  ## 200 random faults under load, and whether every promise was kept: --faults --seed --replicas --workers
	$(BIN)/python -m tests.faults $(ARGS)

soak: $(VENV)/.dev  ## an hour of mixed load, and whether anything grew: --seconds --replicas --workers
	$(BIN)/python -m tests.soak $(ARGS)

bench: $(VENV)/.dev  ## CPU, latency and memory beside nginx, Envoy, a bare relay and FastMCP's proxy, in at most 15 minutes
	$(BIN)/python -m tests.bench $(ARGS)

bench-record: $(VENV)/.dev  ## the same, on a quiet machine: adds a line for this commit to docs/bench-history.jsonl
	$(BIN)/python -m tests.bench --record $(ARGS)

bench-compare: $(VENV)/.dev  ## names the commit that made something slower, from the recorded lines
	$(BIN)/python -m tests.bench.history

screenshots: $(VENV)/.dev  ## writes docs/images/*.png: the console in front of scripted servers
	$(BIN)/python -m tests.e2e.console_screenshots

vendor:  ## copies what the console ships of others out of pinned npm packages
	adapter/edge/console/page/vendor/refresh.sh

dist: sbom  ## dist/: the sdist and its wheel, and the SBOM
	$(BIN)/python -m build $(ARGS) --outdir dist .

sbom: $(VENV)/.dev  ## dist/sbom.cdx.json: packages and vendored libraries, as CycloneDX
	mkdir -p dist
	$(BIN)/python -m deploy.sbom > dist/sbom.cdx.json

constraints:  ## writes deploy/constraints.txt: the newest versions of all packages in the image
	deploy/constraints.sh > deploy/constraints.new && mv deploy/constraints.new deploy/constraints.txt

image: $(VENV)/.dev  ## both images; without a container engine their steps are done, as root on Linux: --extras
	if docker info >/dev/null 2>&1; then $(PYTHON) -m deploy.release images; \
	else $(BIN)/python -m tests.image .cache/image-base $(ARGS); fi

# Their programs need no package.
HELM ?= helm
release: dist  ## dist/: what a release has beside the images, with checksums
	$(HELM) package --destination dist deploy/helm/mcp-adapter
	$(PYTHON) -m deploy.bundle dist/*.whl dist/mcp-file-adapter.mcpb
	$(PYTHON) -m deploy.registry dist/mcp-file-adapter.mcpb > dist/server.json
	cd dist && rm -f SHA256SUMS && sha256sum * > ../SHA256SUMS && mv ../SHA256SUMS .

release-check:  ## whether all versions and names fit TAG
	$(PYTHON) -m deploy.release check $(TAG)

push-images:  ## both images to the registry of the owner, for two architectures
	$(PYTHON) -m deploy.release images --push

push-chart:  ## the chart of dist/ to the registry of the owner
	$(PYTHON) -m deploy.release chart --helm $(HELM) dist/mcp-adapter-*.tgz

clean:
	rm -rf $(VENV) .venvs .cache build dist
