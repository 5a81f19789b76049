# make demo    everything from nothing: install, build the image, run a suite on all technologies, write the report
# make test    the tests for every change, linters and types included
# make test-slow  the tests that take long, for a release: further stacks, networks, seeds and locales
# make alone, programs: the tests that start no engine; make engines, runs, runs-ssh: those that do; make check: linters and types
# make quick   linters, types, and the tests that start no engine: 3 minutes
# make plugin  the tests of one plug-in, slow ones included: make plugin NAME=redis
# make docs    write the lists of plug-ins in docs, the JSON Schema of suites, the manual page and shell completion
# make setup   only install: Debian packages, and a virtual environment in .venv
# make bench   what tare itself costs, per technology and for its statistics, on this machine
# make audit   whether its decisions can be trusted: thousands of simulated runs, and a real container; writes research/audit.md
# make validate how right tare advise is: 14 applications measured and predicted, in an hour; OUT=runs/validate, STAGES=
# make soak    kill a run 200 times, in an hour, and look for what is lost or left; OUT=runs/soak, KILLS=200
# make wheel   build the wheel into dist/
# make lab     start the lab: emulated machines for KVM, Xen and arm64 (docs/contributing.md); LAB=kvm starts one
# make lab-stop, make test-lab: stop it; its tests, which take more than an hour, and 5 GB of memory
# make test-kubernetes: pods of a real cluster of one node, which it starts; builds Kubernetes first, once, in 12 minutes
# make test-sandboxes: sandboxes that Debian does not package, which it builds first
# make test-dictionary: VTmark's case study (examples/dictionary) with three users; builds its images first
# make pictures pictures of the report of RUN, or of the newest run, in OUT

PYTHON ?= python3
BUDGET ?= 5m
LAB ?= all
FUZZ_PACKAGES := clang libclang-rt-14-dev
UV_VERSION := 0.13.9

# What the demo needs on a fresh Debian besides git, make and Python: the technologies, and what builds the image.
# Debian 13 has Docker's client apart, Podman's netavark needs nft, zstd unpacks its kernels, and there is Incus: the daemon
# of its LXD did not start.
RELEASE := $(shell . /etc/os-release && echo "$$VERSION_CODENAME")
OF_RELEASE := $(if $(filter bookworm,$(RELEASE)),lxd lxd-client,docker-cli incus libwasmedge0 nftables zstd)
NOT_OF_RELEASE := $(if $(filter bookworm,$(RELEASE)),,lxd lxd-agent lxd-client)
PACKAGES := binutils cargo-web e2fsprogs gcc iproute2 libc6-dev libseccomp-dev lld mmdebstrap nftables openssh-client pkg-config \
	python3-venv rust-web-src rustc-web util-linux $(OF_RELEASE)
DECLARED := PYTHONPATH=tests/support .venv/bin/python tests/support/declared.py
# What checks the sources, and takes pictures of pages; what the tests of a plug-in need, the plug-in declares.
TEST_PACKAGES := bpftrace busybox-static chromium clang-format gcc-aarch64-linux-gnu groff-base libc6-dev-arm64-cross linux-perf \
	librsvg2-bin musl-tools poppler-utils procps qemu-user-static rustfmt-web shellcheck skopeo umoci zstd
SLOW_TEST_PACKAGES := texlive-latex-recommended
# The server that takes exports; a test starts it.
SERVERS := prometheus

# The contract tests that are about technologies with an inside, and need no daemon and no registry.
POD_TESTS := $(patsubst %,tests/contract/test_%.py,technologies lifecycle hosts command server_of_yours)

# Which tests are for every change: the others have targets of their own.
EVERY_CHANGE := not lab and not slow

# Of whole runs, those that use a daemon.
RUNS_OF_DAEMONS := tests/system/test_shell.py

TARE := .venv/bin/tare
WITH_ENGINES := tests/lab/with-engines
SCRIPTS := $(filter-out %.py %/__pycache__ %/kube %/shims,$(wildcard tests/lab/* tests/lab/shims/*))

# Each is a target of its own: one that fails hides no other.
CHECKS := ruff ruff-format style mypy lint-imports clang-format rustfmt shellcheck ansible-lint

# What Python compiles is kept: without it, each start of tare compiles all of it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick alone programs engines sandboxes runs runs-ssh unikernel check $(CHECKS) setup packages test-packages servers bench audit validate soak fuzz plugin docs wheel lab lab-stop test-lab test-slow test-dictionary test-kubernetes test-sandboxes pictures format vulnerabilities

demo: setup
	@began=$$(date +%s); $(TARE) image examples/quick.toml && echo "image: $$(($$(date +%s) - began)) s" >&2
	@began=$$(date +%s); $(WITH_ENGINES) $(TARE) run examples/quick.toml --budget $(BUDGET) && \
		echo "run and report: $$(($$(date +%s) - began)) s" >&2
	@printf '%s\n' 'next:' '  $(TARE) doctor' '      what works here, and what the rest needs' \
		'  $(TARE) try --package sysbench -- sysbench cpu --time=1 run' '      a command of yours on every stack' \
		'  $(TARE) run examples/full.toml --serve' '      every workload, with the report in a browser' >&2

# In three lanes side by side, whatever fails. `check` comes early, as a test of the documents uses its cache of mypy.
test: setup test-packages servers
	@.venv/bin/python tests/support/lanes.py engines alone check runs runs-ssh programs unikernel

quick: check
	.venv/bin/pytest -m "not machine and $(EVERY_CHANGE)" tests/unit

# What starts no engine.
alone: setup test-packages
	.venv/bin/pytest -m "not machine and $(EVERY_CHANGE)" --ignore=tests/unit/programs

# The programs that run inside, compiled with AddressSanitizer: a target of its own, so that the lanes end together.
programs: setup test-packages
	.venv/bin/pytest -m "not machine and $(EVERY_CHANGE)" tests/unit/programs

# What starts engines. The images that the tests need are built before the first test.
engines: setup test-packages servers sandboxes
	$(WITH_ENGINES) .venv/bin/pytest -m "machine and not ssh and $(EVERY_CHANGE)" \
		$$(grep -rl --include="test_*.py" "mark.machine" tests/contract tests/unit) $(RUNS_OF_DAEMONS)

# Programs that Debian does not package, on the path of the tests with engines.
sandboxes: test-packages
	@command -v npm >/dev/null || tests/lab/install npm
	-@.venv/bin/python tests/lab/sandboxes.py srt >/dev/null

# Whole runs need no daemons: beside the others, as each run's locks and networks are its own.
runs: setup test-packages servers
	.venv/bin/pytest -m "machine and not ssh and $(EVERY_CHANGE)" $(RUNS_OF_DAEMONS:%=--ignore=%) tests/system

# What runs on machines over SSH, likewise. To collect the tests of all files takes half a minute.
runs-ssh: setup test-packages
	.venv/bin/pytest -m "machine and ssh and $(EVERY_CHANGE)" $$(grep -rl --include="test_*.py" "mark.ssh" tests)

unikernel: setup test-packages
	cd programs/unikernel && CARGO_TARGET_DIR=$(CURDIR)/.venv/cargo /usr/bin/cargo test --quiet --locked -p application

check: $(CHECKS)

$(CHECKS): setup test-packages

ruff:
	.venv/bin/ruff check

style:
	.venv/bin/python tests/support/style.py

ruff-format:
	.venv/bin/ruff format --check

mypy:
	.venv/bin/mypy

lint-imports:
	.venv/bin/lint-imports --no-cache --no-logo

clang-format:
	clang-format --dry-run -Werror programs/*.c programs/*.h programs/*/*.c
	clang-format --dry-run -Werror --style=file:programs/.clang-format tests/*/*.c

rustfmt:
	/usr/bin/rustfmt --check --edition 2024 --config-path programs/unikernel programs/unikernel/*/src/*.rs

shellcheck:
	shellcheck $(SCRIPTS) .ci/run

# It looks for the collection where Ansible would have installed it.
ansible-lint:
	@mkdir -p .venv/ansible_collections/tare && ln -sfn $(CURDIR)/ansible .venv/ansible_collections/tare/bench
	cd ansible && PATH=$(CURDIR)/.venv/bin:$$PATH ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/.venv ../.venv/bin/ansible-lint --offline --nocolor

setup: packages .venv/.locked
	@tests/lab/install $$($(DECLARED) packages $(NOT_OF_RELEASE))

packages:
	@tests/lab/install $(PACKAGES)

test-packages: setup
	@tests/lab/install $(TEST_PACKAGES) $$($(DECLARED) test-packages $(NOT_OF_RELEASE))

servers: setup
	@tests/lab/unpack .venv/servers $(SERVERS)

# The packages come first: on a fresh Debian they bring Python's venv.
.venv/.locked: pyproject.toml uv.lock | packages
	@began=$$(date +%s); $(PYTHON) -m venv .venv && .venv/bin/pip install --quiet uv==$(UV_VERSION) && \
		VIRTUAL_ENV= .venv/bin/uv sync --quiet --frozen --inexact --compile-bytecode --python .venv/bin/python && touch $@ && \
		echo "virtual environment: $$(($$(date +%s) - began)) s" >&2

bench: setup
	PYTHONPATH=tests/support $(WITH_ENGINES) .venv/bin/python research/harness_cost.py
	PYTHONPATH=tests/support $(WITH_ENGINES) .venv/bin/python research/start_cost.py
	PYTHONPATH=tests/support .venv/bin/python research/turns.py noise --bursts 5 dhrystone ramspeed redis nginx
	PYTHONPATH=tests/support $(WITH_ENGINES) .venv/bin/python research/turns.py bias 5 dhrystone redis
	.venv/bin/python research/telemetry_cost.py
	PYTHONPATH=tests/support .venv/bin/python research/statistics_cost.py
	PYTHONPATH=tests/support .venv/bin/python research/report_cost.py
	PYTHONPATH=tests/support .venv/bin/python research/query_cost.py
	PYTHONPATH=tests/support .venv/bin/python research/profile_effect.py 3

audit: setup
	PYTHONPATH=tests/plug_ins:tests/support .venv/bin/python research/audit.py --container

# The stages are prices, applications, profiles and page, all of them unless STAGES names some. What OUT has is kept.
validate: setup
	PYTHONPATH=tests/support:tests/lab $(WITH_ENGINES) .venv/bin/python research/validate.py \
		$(foreach stage,$(STAGES),--stage $(stage)) "$(or $(OUT),runs/validate)"

soak: setup
	PYTHONPATH=tests/support:tests/lab $(WITH_ENGINES) .venv/bin/python research/soak.py \
		"$(or $(OUT),runs/soak)" --kills $(or $(KILLS),200)

# Each reader of untrusted bytes for SECONDS, or those that READERS names. What FOLDER keeps, the next time begins with.
fuzz: setup
	@tests/lab/install $(FUZZ_PACKAGES)
	VIRTUAL_ENV= .venv/bin/uv sync --quiet --frozen --inexact --group fuzz --python .venv/bin/python
	PYTHONPATH=tests/support:tests/lab:tests/plug_ins .venv/bin/python tests/fuzz/fuzz.py \
		"$(or $(FOLDER),runs/fuzz)" $(or $(SECONDS),80) $(READERS)

# One plug-in: its own tests, and those of all plug-ins that are about it.
plugin: setup test-packages
	@test -n "$(NAME)" || { echo 'error: which plug-in?\nhint: make plugin NAME=redis' >&2; exit 2; }
	$(WITH_ENGINES) .venv/bin/pytest -m "not lab" -k "$(NAME) or $(subst -,_,$(NAME))"

docs: setup
	$(DECLARED) docs

wheel: setup
	.venv/bin/uv build --quiet --wheel
	.venv/bin/uv export --quiet --frozen --no-dev --preview-features sbom-export --format cyclonedx1.5 \
		--output-file dist/tare-bench.cdx.json >/dev/null

# Asks OSV which of the locked dependencies have known vulnerabilities.
vulnerabilities: setup
	.venv/bin/uv audit --frozen

lab: setup
	.venv/bin/python tests/lab/machines.py start $(LAB)

lab-stop: setup
	.venv/bin/python tests/lab/machines.py stop $(LAB)

test-slow: setup test-packages servers sandboxes
	@tests/lab/install $(SLOW_TEST_PACKAGES)
	$(WITH_ENGINES) .venv/bin/pytest -m slow

test-lab: setup test-packages
	$(WITH_ENGINES) .venv/bin/pytest -m lab

# The network of the cluster's node is its own: what is built from registries is built before.
test-kubernetes: setup test-packages
	@began=$$(date +%s); $(TARE) image examples/kubernetes.toml && PYTHONPATH=tests/support:tests/lab .venv/bin/python -c \
		"from images_built import build_images; build_images({'image'}, print)" && \
		TARE_TEST_CLASSES="runc gvisor" .venv/bin/python tests/lab/cluster.py .venv/bin/pytest -m "machine" \
		tests/lab/test_kubernetes.py $(POD_TESTS) && echo "kubernetes: $$(($$(date +%s) - began)) s" >&2

# The contract of sandboxes, whose programs it builds first from their registries, once, in ten minutes and more.
test-sandboxes: setup test-packages servers sandboxes
	-.venv/bin/python tests/lab/sandboxes.py youki sandlock nsjail
	TARE_TEST_SANDBOXES=1 $(WITH_ENGINES) .venv/bin/pytest -m "machine and not ssh and not lab" \
		-k "nsjail or rootless or microvm or sandlock or srt or youki or together" tests/contract

test-dictionary: setup test-packages
	.venv/bin/pytest -m lab -k test_users tests/lab/test_real_things.py

pictures: setup test-packages
	PYTHONPATH=tests/support .venv/bin/python tests/lab/pictures.py \
		"$(or $(RUN),$(shell ls -td runs/*/ 2>/dev/null | head -n 1))" "$(or $(OUT),docs/pictures)"

format: setup test-packages
	.venv/bin/ruff format
	.venv/bin/ruff check --fix
	clang-format -i programs/*.c programs/*.h programs/*/*.c
