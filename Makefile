# Two commands do everything: `make run` and `make test`. The rest is for those who change Dragoman.

PYTHON ?= python3
ifneq ($(origin PYTHON),file)
# pyenv has commands for versions that are not activated, and they only print an error: then the version itself is run.
override PYTHON := $(or $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null || python3 tests/pythons.py $(PYTHON)),$(PYTHON))
endif
# A Python that is named has an environment of its own: with PYTHON=python3.13 it is .venv-3.13.
SUFFIX := $(if $(filter file,$(origin PYTHON)),,-$(or $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'),none))
VENV   := .venv$(SUFFIX)
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# What `make test` needs too: two MCP servers, two foreign SDKs. Then MCP servers that only `make interop` needs.
TOOLS  := $(patsubst %,.peers/%/ready,mcp-server-time mcp-js a2a-sdk go)
MCP    := $(patsubst %,.peers/%/ready,mcp-server-git mcp-shell-server excel-mcp-server office-word-mcp-server fastmcp)
# What `make test-short` runs: stores, wire formats, gRPC, streams that are cut, commands, a server that is killed.
SHORT  := tests/contract/test_stores.py tests/unit/model tests/unit/dialects tests/unit/transports tests/unit/client/test_grpc.py \
          tests/unit/client/test_reconnect.py tests/unit/cli/test_cli.py tests/wire/test_golden.py \
          tests/wire/test_streams.py tests/wire/test_grpc_calls.py tests/faults/test_kill.py
# Chromium, for the tests of the console.
BROWSER := .peers/chromium/ready
# Other frameworks that speak A2A.
FRAMES := $(patsubst %,.peers/%/ready,agent-framework ag2 langgraph-api crewai litellm)
PEERS  := $(patsubst %,.peers/%/ready,a2a-sdk-03 adk adk-1 adk-1-31 adk-2-5 fasta2a js mcp-tools go-23 rust java grpcurl prometheus) $(TOOLS) $(MCP) $(FRAMES)

# Hundreds of tests start processes: what was compiled once is not compiled again in each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run demo-crash setup test test-all test-short console-test check format lock first-hour picture screenshots interop cluster soak simulate mutants bench verify clean

help:           ## Show this help.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# Ctrl-C is how one stops it: with the trap, make does not call that an error.
run: $(VENV)/run.ready  ## Start the demo agent on 127.0.0.1:8080. Options: make run ARGS="--port 8081".
	@trap : INT; $(BIN)/dragoman serve dragoman.examples.demo $(ARGS); code=$$?; \
	    if [ $$code -eq 2 ]; then echo 'Pass options to the server like this: make run ARGS="--port 8081"' >&2; fi; \
	    [ $$code -eq 130 ] || exit $$code

demo-crash: $(VENV)/run.ready  ## Kill a server in the middle of a stream, restart it, and watch the stream resume.
	@trap : INT; $(BIN)/python -m dragoman.examples.crash

setup: $(VENV)/dev.ready  ## Install everything into .venv: all extras and the test tools.

test: $(VENV)/dev.ready $(TOOLS) $(BROWSER)  ## Run the test suite.
	$(PYTEST) -n 4 --dist worksteal -m "not interop and not cluster and not soak and not typing and not console"

test-all: $(VENV)/dev.ready  ## Run the test suite on every version of Python that is found here, one after the other.
	@failed=; for python in "" $$($(BIN)/python tests/pythons.py); do \
	    $(MAKE) --no-print-directory test $${python:+PYTHON=$$python} || failed="$$failed $${python:-$(VENV)}"; \
	done; [ -z "$$failed" ] || { echo "failed with:$$failed" >&2; exit 1; }

test-short: $(VENV)/short.ready  ## Run a part of the suite that takes half a minute, for other versions of Python.
	$(PYTEST) -q -n 4 --dist worksteal -m "not interop and not cluster and not soak and not typing and not console" $(SHORT)

console-test: $(VENV)/dev.ready $(BROWSER)  ## Test the console at length in a real browser: hostile agents, long streams, large lists.
	$(PYTEST) -n 2 --timeout 300 -m console tests/console

check: $(VENV)/dev.ready  ## Check lint, format, types, import layers and spelling.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(PYTEST) -q -n 2 tests/typing
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell --skip '*/package-lock.json,*/go.sum,*/vendor/*'

format: $(VENV)/dev.ready  ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

interop: $(VENV)/dev.ready $(PEERS)  ## Test with other SDKs and MCP servers, under .peers/; writes docs/interop.md.
	$(PYTEST) -n 2 --timeout 60 -m interop tests/interop --write-table

cluster: $(VENV)/dev.ready  ## Test several nodes on a real PostgreSQL, with faults.
	$(PYTEST) -m cluster --timeout 1200

soak: $(VENV)/dev.ready  ## Run the long tests: faults, large stores, load, many examples.
	$(PYTEST) -m soak --timeout 1200
	$(PYTEST) -n 2 -m "hypothesis and not soak and not cluster and not interop and not console" --hypothesis-profile many --timeout 600

simulate: $(VENV)/dev.ready  ## Play random schedules of the engine in virtual time, and record the range: make simulate SEEDS=0-20000.
	PYTHONPATH=tests $(BIN)/python -m cluster.simulate $(SEEDS)

mutants: $(VENV)/dev.ready $(TOOLS)  ## Mutate the code in 60 places, and list the mutations that no test notices.
	PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

bench: $(VENV)/dev.ready .peers/go-bench/ready .peers/js/ready  ## Benchmark Dragoman and its peers; writes docs/benchmarks.md.
	$(BIN)/python -m bench.compare --write

verify: check test console-test first-hour interop cluster soak bench  ## Run all checks, tests and benchmarks.

lock: $(VENV)/dev.ready  ## Update the lock files to the newest versions.
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --upgrade --universal --python-version 3.11 --extra mcp --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links -q -o requirements/run.lock
	$(BIN)/uv pip compile pyproject.toml --upgrade --universal --python-version 3.11 --all-extras --group test --group check \
	    --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links -q -o requirements/dev.lock
	$(BIN)/uv pip compile pyproject.toml --upgrade --universal --python-version 3.11 --extra grpc --extra postgres --group short \
	    --constraints requirements/dev.lock \
	    --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links -q -o requirements/short.lock

first-hour: $(VENV)/dev.ready  ## Run the first hour of a new user, in real terminals.
	$(BIN)/python tests/docs/first_hour.py

picture: $(VENV)/dev.ready  ## Record the picture of the README from a real run.
	$(BIN)/python tests/docs/record.py

screenshots: $(VENV)/dev.ready $(BROWSER)  ## Take the screenshots of the console in docs/img again, from a real run.
	$(BIN)/python tests/console/screenshots.py

clean:          ## Remove generated files.
	rm -rf .venv .venv-* .peers .mutants .pytest_cache .ruff_cache .hypothesis dist build

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Dragoman needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.ready: $(VENV)/bin/python pyproject.toml requirements/run.lock
	@echo "Installing requirements/run.lock …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# Not compiled: only a few of its modules are imported.
$(VENV)/short.ready: $(VENV)/bin/python pyproject.toml requirements/short.lock
	@echo "Installing requirements/short.lock …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/short.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/dev.ready: $(VENV)/bin/python pyproject.toml requirements/dev.lock
	@echo "Installing requirements/dev.lock …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@# Compile what is tested, and the tests, once, and not in each of the processes that run them.
	@$(BIN)/python -m compileall -q -j 0 src
	@$(PYTEST) --collect-only -qq >/dev/null 2>&1 || true
	@touch $@ $(VENV)/run.ready $(VENV)/short.ready

.peers/%/ready: tests/interop/peers/%.txt
	$(PYTHON) -m venv .peers/$*
	.peers/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Without npm, go or cargo the peer is left out, and its tests say so.
.peers/js/ready .peers/mcp-js/ready .peers/mcp-tools/ready: .peers/%/ready: tests/interop/peers/%/package.json tests/interop/peers/%/package-lock.json
	@if ! command -v npm >/dev/null; then echo "no npm: the packages of $< are left out"; else \
	    mkdir -p .peers/$* && cp $^ .peers/$* && cd .peers/$* && npm ci --silent --no-audit --no-fund && touch ready; fi

# A browser of this machine, or else Debian's Chromium, the one without windows, with which tests take a fifth less time.
# Without one, the tests of the console are skipped, and say why.
.peers/chromium/ready:
	@found() { \
	    [ -n "$$TEST_BROWSER" ] && return; \
	    for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name && return; done; \
	    [ -e "/Applications/Google Chrome.app" ]; \
	}; \
	if ! found >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "Installing Chromium …"; \
	    apt-get update -qq && for package in chromium-headless-shell chromium; do \
	        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$package >/dev/null && break; \
	    done; \
	fi; \
	if found >/dev/null; then mkdir -p $(@D) && touch $@; \
	else echo "no browser: the tests of the console are left out; install Chromium (on Debian: apt-get install chromium), or name one in TEST_BROWSER"; fi

.peers/go-bench/ready: $(wildcard bench/peers/go/* bench/peers/go/load/*)
	@if ! command -v go >/dev/null; then echo "no go: a2a-go is left out"; else \
	    mkdir -p .peers/go-bench && cd bench/peers/go && \
	    go build -buildvcs=false -trimpath -o $(CURDIR)/.peers/go-bench/server . && \
	    go build -buildvcs=false -trimpath -o $(CURDIR)/.peers/go-bench/load ./load && touch $(CURDIR)/$@; fi

# The same programs, against the newest version of the SDK and the one before it.
.peers/go/ready .peers/go-23/ready: $(wildcard tests/interop/peers/go/go*.* tests/interop/peers/go/*/*.go)
	@if ! command -v go >/dev/null; then echo "no go: a2a-go is left out"; else \
	    mkdir -p $(@D) && cd tests/interop/peers/go && \
	    go build -buildvcs=false -trimpath $(GO_FLAGS) -o $(CURDIR)/$(@D)/ ./server ./client && touch $(CURDIR)/$@; fi
.peers/go-23/ready: GO_FLAGS := -modfile=go-2.3.mod -tags a2a_2_3

# Prometheus comes with promtool, and without 240 packages that find servers in clouds.
.peers/grpcurl/ready .peers/prometheus/ready: .peers/%/ready: tests/interop/peers/%/go.mod tests/interop/peers/%/go.sum
	@if ! command -v go >/dev/null; then echo "no go: $* is left out"; else \
	    mkdir -p $(@D) && cd $(<D) && \
	    go build -buildvcs=false -trimpath $(GO_FLAGS) -o $(CURDIR)/$(@D)/ tool && touch $(CURDIR)/$@; fi
.peers/prometheus/ready: GO_FLAGS := -tags remove_all_sd -ldflags "-s -w"

# The stable client of 0.3, and one of 1.0. Java compiles the program when it starts it.
.peers/java/ready: tests/interop/peers/java/pom.xml
	@if ! command -v mvn >/dev/null; then echo "no mvn: a2a-java is left out"; else \
	    for version in 0.3:0.3.3.Final 1.0:1.0.0.Alpha3; do \
	        mvn --quiet --batch-mode -f $< -Da2a.version=$${version#*:} -DoutputDirectory=$(CURDIR)/$(@D)/$${version%:*} \
	            org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies || exit 1; \
	    done && touch $@; fi

.peers/rust/ready: tests/interop/peers/rust/Cargo.toml tests/interop/peers/rust/Cargo.lock $(wildcard tests/interop/peers/rust/*/*.rs)
	@if ! command -v cargo >/dev/null; then echo "no cargo: a2a-rs is left out"; else \
	    cargo build --quiet --locked --manifest-path $< --target-dir $(@D) && touch $@; fi
