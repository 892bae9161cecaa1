# SPDX-License-Identifier: Apache-2.0
#
# Fairlead. `make` lists what there is; `make up` and `make test` are where to start. Only Go is needed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# One set of build flags for every Go command, here and in pkg/components: Go's build cache keeps packages apart that
# were compiled with different flags, and Kubernetes takes minutes to compile. No cgo: the binaries are static and need
# no C compiler. -trimpath and -buildvcs=false: they do not depend on where and from which commit they are built.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

BIN := $(CURDIR)/bin
OUT := $(CURDIR)/_output
GO ?= go
# Modules of their own, whose packages no program of this repository is built from.
MODULES := deploy/tools deploy/tools/kube-api-linter e2e/bench e2e/offline
# Every directory with a go.mod: also modules that only pin a program, and those that take long to compile.
ALL_MODULES = $(shell git ls-files --cached --others --exclude-standard go.mod '*/go.mod' | xargs -n 1 dirname)
GOLANGCI_LINT = $(GO) tool -modfile=$(CURDIR)/deploy/tools/golangci-lint/go.mod golangci-lint

VERSION ?= $(shell git describe --tags --dirty 2>/dev/null || git describe --always --dirty 2>/dev/null | sed 's/^/v0.0.0-/')
# Kubernetes' version stands in go.mod. Its packages report it only if it is stamped into the binary.
KUBERNETES_VERSION = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
LDFLAGS = -s -w $(if $(VERSION),-X github.com/fairlead-dev/fairlead/pkg/internal/version.version=$(VERSION)) \
	$(foreach pkg,k8s.io/client-go/pkg/version k8s.io/component-base/version, \
	-X $(pkg).gitVersion=$(KUBERNETES_VERSION) -X $(pkg).gitTreeState=clean -X $(pkg).gitCommit= \
	-X $(pkg).gitMajor=$(word 1,$(subst ., ,$(KUBERNETES_VERSION:v%=%))) \
	-X $(pkg).gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION:v%=%))))

# What comes on top of a target's own flags: make up UP_FLAGS='--name big --nodes 50', make test TEST_FLAGS='-run Verify'.
UP_FLAGS ?=
DOWN_FLAGS ?=
STATUS_FLAGS ?=
TEST_FLAGS ?=
BENCH_FLAGS ?=
NODE_IMAGE_FLAGS ?=

##@ Cluster

# A cluster needs four programs; the operator and the tunnel's API server are built when the flags ask for more than the default.
.PHONY: up
up: $(if $(UP_FLAGS),build,build-up) ## Bring up a cluster on this machine and verify it (UP_FLAGS)
	@$(BIN)/fairlead up $(UP_FLAGS)

.PHONY: down
down: build ## Remove the cluster (DOWN_FLAGS)
	@$(BIN)/fairlead down $(DOWN_FLAGS)

.PHONY: status
status: build ## Show the cluster's processes (STATUS_FLAGS)
	@$(BIN)/fairlead status $(STATUS_FLAGS)

##@ Build

GO_BUILD = $(GO) run ./internal/gobuild/gobuild

.PHONY: build
build: ## Build all programs of this repository into bin/
	@mkdir -p $(BIN)
	@$(GO_BUILD) -expect 'about 4 minutes' -- -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

.PHONY: build-up
build-up:
	@mkdir -p $(BIN)
	@$(GO_BUILD) -expect 'about 4 minutes' -- -ldflags '$(LDFLAGS)' -o $(BIN)/ \
		./cmd/fairlead ./cmd/fairlead-scheduler ./cmd/konnectivity-server ./cmd/konnectivity-agent

.PHONY: images
images: export GOOS := linux
images: build ## Make the container images that the default bundle names, as archives in _output/images, and load them into docker if it is there
	@env -u GOOS $(GO) -C deploy/tools run ./images -bin $(BIN) -o $(OUT)/images

.PHONY: node-image
node-image: build ## Build an image for kind's nodes with no registry, see e2e/offline/nodeimage (needs root, Debian and docker) (NODE_IMAGE_FLAGS)
	@mkdir -p $(OUT)
	@$(GO) -C e2e/offline build -o $(OUT)/nodeimage ./nodeimage
	@$(OUT)/nodeimage $(NODE_IMAGE_FLAGS)

.PHONY: clean
clean: ## Remove what was built here; clusters and Go's caches stay
	@rm -rf $(BIN) $(OUT)

##@ Test

# Every run of tests goes through gotestsum, which prints a line for each package, and through testlimit, which ends a test that
# hangs and names it. testreport then counts what ran and why tests were skipped.
GOTESTSUM = $(GO) tool -modfile=$(CURDIR)/deploy/tools/gotestsum/go.mod gotestsum
TESTS := $(OUT)/tests
TEST_P ?= 5
TEST_LIMIT ?= 60s
# CI lets up to three tests that failed run again, and names them in _output/flakes.txt: each is a fault to mend.
RERUN ?= $(if $(CI),--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test)
# $(call run-tests,NAME,DIRECTORY,PACKAGES,FLAGS)
run-tests = cd $(2) && $(GOTESTSUM) --format pkgname --format-hide-empty-pkg --hide-summary=skipped --jsonfile $(TESTS)/$(1).json $(RERUN) \
	--packages '$(3)' -- -p $(TEST_P) -shuffle=on -vet=off -timeout 20m -exec '$(TESTS)/testlimit -limit $(TEST_LIMIT)' $(4) $(TEST_FLAGS)
test-report = $(TESTS)/testreport -flakes $(TESTS)/$(1).flakes $(1:%=$(TESTS)/%.json)

.PHONY: test-tools
test-tools:
	@rm -rf $(TESTS) && mkdir -p $(TESTS)
	@$(GO) -C deploy/tools build -o $(TESTS)/ ./testlimit ./testreport

# Without packages that need a cluster or the machine's Docker: e2e/suite brings up its own cluster on processes.
# Go starts packages in this order: what waits for long comes first, so that it does not run alone at the end.
TEST_FIRST := ./pkg/konnectivity/tunneltest ./pkg/operator ./pkg/controlplane ./pkg/crd ./pkg/install
TEST_PACKAGES = $(TEST_FIRST) $(filter-out $(TEST_FIRST:./%=github.com/fairlead-dev/fairlead/%),$(shell $(GO) list ./cmd/... ./internal/... ./pkg/... ./e2e/... | grep -vE '/e2e/(suite|embedded|kind|tunnel)'))
TEST_MAIN_E2E := ./e2e/suite

.PHONY: test
test: export FAIRLEAD_TEST_LAYER := main
test: export FAIRLEAD_E2E_BIN := $(BIN)
test: export PROVIDER := embedded
test: build compile-components test-tools ## Prove that it works, in minutes: unit tests, the main path of each package with a real API server, one cluster (TEST_FLAGS)
	@$(call run-tests,test,.,$(TEST_MAIN_E2E) $(TEST_PACKAGES)) || { $(call test-report,test); exit 1; }
	@$(call test-report,test)

.PHONY: test-unit
test-unit: test-tools ## Run the tests that need no control plane (TEST_FLAGS)
	@$(call run-tests,unit,.,$(TEST_PACKAGES),-short) || { $(call test-report,unit); exit 1; }
	@$(call test-report,unit)

# The modules of their own: each go command sees one.
run-module-tests = for m in $(MODULES); do ( $(call run-tests,$$(echo $$m | tr / -),$(CURDIR)/$$m,./...) ) || failed=1; done

.PHONY: test-modules
test-modules: test-tools ## Run the tests of the tools, benchmarks and the offline node image (TEST_FLAGS)
	@failed=; $(run-module-tests); $(TESTS)/testreport -flakes $(TESTS)/modules.flakes $(TESTS)/*.json; [ -z "$$failed" ]

.PHONY: test-integration
test-integration: build compile-components test-tools ## Run all tests but those on clusters, with a real API server (TEST_FLAGS)
	@failed=; $(call run-tests,integration,.,$(TEST_PACKAGES)) || failed=1; $(run-module-tests); \
	$(TESTS)/testreport -flakes $(TESTS)/integration.flakes $(TESTS)/*.json; [ -z "$$failed" ]

.PHONY: test-all
test-all: ## Run everything: all tests, both suites, three control planes, race detector, fuzzers, a slice of chaos; takes hours
	@$(MAKE) test-integration
	@$(MAKE) e2e
	@$(MAKE) e2e PROVIDER=kind
	@$(MAKE) test-race
	@$(MAKE) fuzz
	@$(MAKE) chaos CHAOS_FLAGS=-slice

# Never from the cache, because Go does not see which programs they start. Each package has separate clusters, which it removes, also
# after a failure or Ctrl-C. Embedded packages mostly wait, so they run side by side. Those on kind count what their clusters leave behind.
PROVIDER ?= embedded
E2E_PARALLEL ?= 3
ifeq ($(PROVIDER),kind)
E2E_PARALLEL := 1
E2E_PACKAGES := ./e2e/suite ./e2e/kind/...
# E2E_NODE_IMAGE=kindest/node:… takes another image than the one that is built here.
ifndef E2E_NODE_IMAGE
e2e: node-image
endif
else
E2E_PACKAGES := ./e2e/suite ./e2e/embedded ./e2e/tunnel/...
endif

# What CI leaves out of the suites, because it takes minutes: `make test-all` runs it. Of the tests that CI leaves out on kind, the first three
# run on the embedded cluster.
CI_SKIP_embedded := ^(TestSchedulerNeverOverbooks)$$
CI_SKIP_kind := ^(TestRunbooks|TestCheckPages|TestCheckRights|TestSilentNetwork|TestLossyNetwork|TestAgentStopped)$$
E2E_SKIP := $(if $(CI),-skip '$(CI_SKIP_$(PROVIDER))')
# E2E_PACKAGES and E2E_NAME run a part under a separate name.
E2E_NAME ?= $(PROVIDER)
.PHONY: e2e
e2e: export PROVIDER := $(PROVIDER)
e2e: export FAIRLEAD_E2E_BIN := $(BIN)
e2e: build compile-components ## Run the end-to-end tests: real clusters, all checks, bad input (PROVIDER=embedded|kind, TEST_FLAGS)
	@mkdir -p $(OUT)/e2e
	@$(GOTESTSUM) --format testname --hide-summary=skipped --junitfile $(OUT)/e2e/$(E2E_NAME).xml --junitfile-project-name fairlead \
		--jsonfile $(OUT)/e2e/$(E2E_NAME).json $(RERUN) --packages '$(E2E_PACKAGES)' -- -timeout 60m -count 1 -p $(E2E_PARALLEL) $(E2E_SKIP) $(TEST_FLAGS)

# Kubernetes' own suite compiles for ten minutes: CI leaves it out, and the linters, too.
KUBERNETES_E2E := $(OUT)/kubernetes
.PHONY: e2e-kubernetes
e2e-kubernetes: export FAIRLEAD_E2E_KUBERNETES := $(KUBERNETES_E2E)
e2e-kubernetes: ## Run specs of Kubernetes' own e2e suite on kind, through the tunnel alone and with fairlead proxy as kubectl proxy; takes about 40 minutes (TEST_FLAGS)
	@mkdir -p $(KUBERNETES_E2E)
	@for m in k8s.io/kubernetes k8s.io/sample-apiserver; do v=$$($(GO) -C e2e/kubernetes list -m -f '{{.Version}}' $$m); \
		[ "$${v#v?.}" = "$(KUBERNETES_VERSION:v1.%=%)" ] || { echo "e2e/kubernetes/go.mod has $$m $$v, go.mod has Kubernetes $(KUBERNETES_VERSION): use the same" >&2; exit 1; }; done
	$(GO) -C e2e/kubernetes test -c -o $(KUBERNETES_E2E)/e2e.test .
	$(GO) -C e2e/kubernetes build -ldflags '-s -w' -o $(KUBERNETES_E2E)/ k8s.io/kubernetes/test/images/agnhost k8s.io/sample-apiserver
	@cp -f $$($(GO) -C e2e/kubernetes list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter/localhost.* $(KUBERNETES_E2E)/
	@$(MAKE) e2e PROVIDER=kind E2E_PACKAGES=./e2e/kind/specs E2E_NAME=kubernetes

# The race detector needs cgo and compiles all dependencies again: these are the packages with concurrency of their own.
RACE_LONG := ^(TestThousandsOfDials|TestSilentNetworkDefaults|TestReviewSlowOrFailing)$$
RACE_PROGRAMS := ^(TestRough|TestAgentRollout)$$
RACE_PACKAGES := ./pkg/apis/fairlead/conversion/... ./pkg/crd/... ./pkg/daemon ./pkg/check/... ./pkg/cluster/... ./pkg/cli/... ./pkg/gateway/... \
	./pkg/internal/... ./pkg/konnectivity/... ./pkg/operator ./pkg/scheduler/politeevents ./pkg/scheduler/plugins/... ./pkg/scheduler/tunnelcondition ./pkg/tunnelapi/...

.PHONY: test-race
test-race: export CGO_ENABLED := 1
test-race: test-tools ## Run the tests of concurrent code under the race detector (needs gcc) (TEST_FLAGS)
	@$(call run-tests,race,.,./pkg/konnectivity/tunneltest $(RACE_PACKAGES),-race -short)
	@$(call run-tests,race-long,.,./pkg/konnectivity/tunneltest,-race -run '$(RACE_LONG)')
	@FAIRLEAD_TEST_RACE=1 CGO_ENABLED=0 $(GOTESTSUM) --format pkgname --jsonfile $(TESTS)/race-programs.json --packages ./e2e/tunnel -- -count 1 -timeout 20m $(TEST_FLAGS) -run '$(RACE_PROGRAMS)'
	@$(TESTS)/testreport -flakes $(TESTS)/race.flakes $(TESTS)/race.json $(TESTS)/race-long.json $(TESTS)/race-programs.json

.PHONY: flakes
flakes: N ?= 20
flakes: build compile-components ## Run unit and integration tests N times in random order, under load and under the race detector, and list what fails (N, FLAKES_FLAGS)
	@$(GO) -C deploy/tools run ./flakes -n $(N) --dir $(CURDIR) --out $(OUT)/flakes.txt $(foreach p,$(RACE_PACKAGES),--race-packages $(p)) $(FLAKES_FLAGS)

.PHONY: mutants
mutants: ## Change the code of PKG in one place at a time, and list changes that no test notices (PKG=./pkg/..., MUTANTS_FLAGS)
	@$(GO) -C deploy/tools run ./mutants --dir $(CURDIR) $(MUTANTS_FLAGS) $(PKG)

# A fuzzer at a time: each uses all processors. What one finds is written to its package's testdata, for `make test`.
# FUZZ_TIME counts inputs: with a time, Go before 1.27 may end in "context deadline exceeded" with nothing found (go.dev/issue/75804).
FUZZ_TIME ?= 15000x
.PHONY: fuzz
fuzz: ## Run every fuzzer with some inputs (FUZZ_TIME, for each: 15000x, or a time, 10m)
	@set -e; grep -r '^func Fuzz' --include '*_test.go' pkg | sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9]*).*|\1 \2|' | sort | \
	while read -r package fuzzer; do \
		echo "==> $$package $$fuzzer"; \
		$(GO) test -timeout 30m -run '^$$' -fuzz "^$$fuzzer\$$" -fuzztime $(FUZZ_TIME) ./$$package; \
	done

.PHONY: test-upgrade
UPGRADE_FROM ?= $(shell git tag --merged HEAD --sort=-version:refname --list 'v*' | head -n 1)
test-upgrade: ## Replace the tunnel's programs of another version by this one's under load, and back (UPGRADE_FROM, by default the newest release)
	@[ -n '$(UPGRADE_FROM)' ] || { echo 'There is no release to upgrade from: set UPGRADE_FROM to a tag or commit' >&2; exit 2; }
	@dir=$$(mktemp -d); trap 'git worktree remove --force "$$dir/source" 2>/dev/null; rm -rf "$$dir"' EXIT; \
	git worktree add --quiet --detach "$$dir/source" '$(UPGRADE_FROM)' && \
	$(GO) -C "$$dir/source" build -o "$$dir/" ./cmd/konnectivity-server ./cmd/konnectivity-agent && \
	FAIRLEAD_E2E_EARLIER="$$dir" $(GO) test -count 1 -v -run '^TestUpgrade$$' ./e2e/tunnel

.PHONY: e2e-upgrade
e2e-upgrade: export FAIRLEAD_E2E_BIN := $(BIN)
e2e-upgrade: export PROVIDER := $(PROVIDER)
ifeq ($(PROVIDER),kind)
UPGRADE_PACKAGE := ./e2e/kind/install
ifndef E2E_NODE_IMAGE
e2e-upgrade: node-image
endif
else
UPGRADE_PACKAGE := ./e2e/embedded
endif
e2e-upgrade: build compile-components ## Upgrade an embedded cluster, or an installation on kind, of another version to this one while it is used (PROVIDER=embedded|kind, UPGRADE_FROM, by default the newest release)
	@[ -n '$(UPGRADE_FROM)' ] || { echo 'There is no release to upgrade from: set UPGRADE_FROM to a tag or commit' >&2; exit 2; }
	@dir=$$(mktemp -d); trap 'git worktree remove --force "$$dir/source" 2>/dev/null; rm -rf "$$dir"' EXIT; \
	git worktree add --quiet --detach "$$dir/source" '$(UPGRADE_FROM)' && \
	$(MAKE) -C "$$dir/source" build && \
	FAIRLEAD_E2E_EARLIER="$$dir/source/bin" $(GO) test -count 1 -timeout 40m -v -run '^TestUpgrade$$' $(UPGRADE_PACKAGE)

CHAOS_FLAGS ?=
CHAOS_ENV = PROVIDER=$(PROVIDER) FAIRLEAD_E2E_PROMETHEUS=$(OUT)/prometheus/prometheus
SOAK_TIME ?= 1h
.PHONY: chaos
ifeq ($(PROVIDER),kind)
ifndef E2E_NODE_IMAGE
chaos soak-faults: node-image
endif
endif
chaos: export FAIRLEAD_E2E_BIN := $(BIN)
chaos: build compile-components prometheus ## Cause the faults of docs/chaos.md and check their bars (PROVIDER=embedded|kind, CHAOS_FLAGS, for example '-only 1,2 -seed 7' or -slice)
	@$(CHAOS_ENV) $(GO) run ./e2e/chaos $(CHAOS_FLAGS)

.PHONY: soak
soak: export FAIRLEAD_E2E_BIN := $(BIN)
soak: build compile-components prometheus ## Lead one server through faults, then watch a healthy cluster for alerts, each for SOAK_TIME; fails if the server grows or an alert fires
	@FAIRLEAD_E2E_SOAK=$(SOAK_TIME) $(GO) test -count 1 -timeout 0 -v -run '^TestSoak$$' ./e2e/tunnel
	@PROVIDER=embedded FAIRLEAD_E2E_SILENCE=$(SOAK_TIME) FAIRLEAD_E2E_PROMETHEUS=$(OUT)/prometheus/prometheus $(GO) test -count 1 -timeout 0 -v -run '^TestMonitoring$$' ./e2e/suite

.PHONY: soak-faults
soak-faults: export FAIRLEAD_E2E_BIN := $(BIN)
soak-faults: build compile-components prometheus ## Run make chaos again and again for SOAK_TIME (CHAOS_FLAGS)
	@$(CHAOS_ENV) $(GO) run ./e2e/chaos -for $(SOAK_TIME) $(CHAOS_FLAGS)

# With PROVIDER=kind, compared with plain kind, whose command is built for that.
.PHONY: bench-up
bench-up: build ## Measure bring-up: cold, warm, and memory; with PROVIDER=kind compared with plain kind (BENCH_FLAGS)
	@mkdir -p $(OUT)
ifeq ($(PROVIDER),kind)
	@$(GO) build -o $(OUT)/kind sigs.k8s.io/kind
endif
	@$(GO) -C e2e/bench build -o $(OUT)/bench-up ./up
	@$(OUT)/bench-up $(if $(PROVIDER),-provider $(PROVIDER)) $(BENCH_FLAGS)

# Both pairs are built alike, as programs of their own.
BENCH_TUNNEL := $(OUT)/bench-tunnel
BENCH_SERVER := $(BENCH_TUNNEL)/ours/konnectivity-server
BENCH_AGENT := $(BENCH_TUNNEL)/ours/konnectivity-agent
BENCH_PAIRS := upstream=$(BENCH_TUNNEL)/upstream/server:$(BENCH_TUNNEL)/upstream/agent,ours=$(BENCH_SERVER):$(BENCH_AGENT)
BENCH_MIXED := ours+upstream=$(BENCH_SERVER):$(BENCH_TUNNEL)/upstream/agent,upstream+ours=$(BENCH_TUNNEL)/upstream/server:$(BENCH_AGENT)
.PHONY: bench-tunnel
bench-tunnel: ## Compare our tunnel with upstream's, ssh -D and others, see docs/tunnel-benchmark.md; takes about 40 minutes (BENCH_FLAGS, for example '-goals -only down,up,dial,echo -reps 1')
	@mkdir -p $(BENCH_TUNNEL)/ours $(BENCH_TUNNEL)/upstream
	@$(GO) -C e2e/bench build -o $(BENCH_TUNNEL)/bench-tunnel ./tunnel
	@$(GO) build -ldflags '$(LDFLAGS)' -o $(BENCH_TUNNEL)/ours/ ./cmd/konnectivity-server ./cmd/konnectivity-agent
	@$(GO) build -o $(BENCH_TUNNEL)/upstream/ sigs.k8s.io/apiserver-network-proxy/cmd/server sigs.k8s.io/apiserver-network-proxy/cmd/agent
	@$(BENCH_TUNNEL)/bench-tunnel -pairs '$(BENCH_PAIRS),$(BENCH_MIXED)' $(BENCH_FLAGS)

.PHONY: bench-mux
bench-mux: ## Compare ways to carry many connections over one: our link, yamux, HTTP/2, QUIC
	@$(GO) -C e2e/bench run ./mux $(BENCH_FLAGS)

.PHONY: bench-ways-in
bench-ways-in: build ## Compare the ways into a cluster with those of others, in all parts or with -only in some (BENCH_FLAGS, for example '-only proxy -reps 9')
	@$(GO) -C e2e/bench build -o $(OUT)/bench-ways-in ./waysin
	@$(OUT)/bench-ways-in -fairlead $(BIN)/fairlead -bin $(BIN) $(BENCH_FLAGS)

.PHONY: bench-calls
ifndef E2E_NODE_IMAGE
bench-calls: node-image
endif
bench-calls: build compile-components ## Measure exec, logs, port-forward, cp, webhooks and aggregated calls on kind: through the tunnel, upstream's and directly (BENCH_FLAGS, for example '-reps 3 -only exec,logs')
	@mkdir -p $(BENCH_TUNNEL)/upstream
	@$(GO) build -o $(BENCH_TUNNEL)/upstream/ sigs.k8s.io/apiserver-network-proxy/cmd/server sigs.k8s.io/apiserver-network-proxy/cmd/agent
	@$(GO) -C e2e/bench build -o $(OUT)/bench-calls ./calls
	@$(OUT)/bench-calls -bin $(BIN) -upstream $(BENCH_TUNNEL)/upstream $(BENCH_FLAGS)

.PHONY: bench-api
bench-api: build ## Measure the declarative API: conversion, the operator, a restart with objects of the old version (BENCH_FLAGS, for example '-old 500')
	@$(GO) -C e2e/bench build -o $(OUT)/bench-api ./api
	@$(OUT)/bench-api -fairlead $(BIN)/fairlead $(BENCH_FLAGS)

.PHONY: bench-apiserver
bench-apiserver: build ## Measure the extension API server: watches, lists, memory, its load on a konnectivity-server, and what kube-apiserver is part of (BENCH_FLAGS, for example '-strict -only watch')
	@$(GO) -C e2e/bench build -o $(OUT)/bench-apiserver ./apiserver
	@$(OUT)/bench-apiserver -fairlead $(BIN)/fairlead -apiserver $(BIN)/fairlead-apiserver -konnectivity-server $(BIN)/konnectivity-server $(BENCH_FLAGS)

.PHONY: bench-http2
bench-http2: ## Compare the memory of HTTP/2 servers with 5,000 clients, see docs/adr/0001-own-http2.md (BENCH_FLAGS)
	@mkdir -p $(OUT)
	@$(GO) -C e2e/bench build -ldflags '-s -w' -o $(OUT)/bench-http2 ./http2
	@$(OUT)/bench-http2 $(BENCH_FLAGS)

# One binary for each tag, so that nothing but the import differs.
.PHONY: bench-promtext
bench-promtext: ## Compare the memory of a program with and without client_golang, see docs/adr/0013-own-netx-and-promtext.md
	@mkdir -p $(OUT)
	@$(GO) -C e2e/bench build -ldflags '-s -w' -o $(OUT)/bench-promtext ./promtext
	@$(GO) -C e2e/bench build -ldflags '-s -w' -tags client_golang -o $(OUT)/bench-client-golang ./promtext
	@$(OUT)/bench-promtext
	@$(OUT)/bench-client-golang

BENCH_SCHEDULER := $(OUT)/bench-scheduler
.PHONY: bench-scheduler
bench-scheduler: build compile-components ## Compare the second scheduler with kube-scheduler, see docs/scheduler-benchmark.md; takes about 45 minutes (BENCH_FLAGS)
	@mkdir -p $(BENCH_SCHEDULER)
	@$(GO) -C e2e/bench build -o $(BIN)/bench-scheduler ./scheduler
	@$(BIN)/bench-scheduler -results $(BENCH_SCHEDULER)/results.jsonl $(BENCH_FLAGS)

# Compiles etcd, kwok and Kubernetes into Go's build cache, without linking. Tests that start them find them compiled,
# instead of compiling the same packages next to `go test` on a cold cache.
.PHONY: compile-components
compile-components:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	cp pkg/components/components.mod "$$dir/go.mod"; cp pkg/components/components.sum "$$dir/go.sum"; cd "$$dir"; \
	$(GO) build $$($(GO) list tool | grep -Ev '/(kubelet|kubeadm|kube-proxy)$$')

##@ Release

RELEASE_TARGETS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64
RELEASE = $(GO) -C deploy/tools run ./release -version '$(VERSION)' -targets '$(RELEASE_TARGETS)' -ldflags '$(LDFLAGS)'
.PHONY: release
release: advisories ## Make archives of programs, images for several architectures, a bill of materials and checksums in _output/release (VERSION, RELEASE_TARGETS)
	@$(RELEASE) -source $(CURDIR) -o $(OUT)/release
	@cat $(OUT)/release/SHA256SUMS

# The copy has what git knows of, in its present state.
.PHONY: release-verify
release-verify: release ## Build the release a second time, from a copy of the sources in another directory, and fail if a file differs
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	git ls-files -z | tar --null --files-from - --create | tar --extract --directory "$$dir"; \
	$(RELEASE) -source "$$dir" -o $(OUT)/release-again -compare $(OUT)/release
	@rm -rf $(OUT)/release-again; echo 'Both builds are the same.'

##@ Check

.PHONY: verify
verify: verify-workflows verify-links verify-deps verify-generated verify-components verify-manifests verify-monitoring verify-reference verify-licenses verify-logging verify-api ## Fail if go.mod, generated code, the components' module, rendered files, the command line's reference or license headers are out of date, if a log line has no keys and values, or if the Go API changed without a word in CHANGELOG.md

.PHONY: verify-links
verify-links: ## Fail if a link of a Markdown file leads nowhere
	@GO=$(GO) deploy/tools/mdlinks/check.sh

# A tag of an action can be moved to other code.
.PHONY: verify-workflows
verify-workflows:
	@unpinned=$$(grep -nE '^ *-? *uses:' .github/workflows/*.yaml | grep -vE '@[0-9a-f]{40} # v[0-9]' || true); \
	[ -z "$$unpinned" ] || { echo "Pin these actions to a commit, with the version in a comment:" >&2; echo "$$unpinned" >&2; exit 1; }

.PHONY: update
update: tidy generate update-components manifests update-reference ## Update generated code, the components' module, rendered files and the command line's reference

# The packages whose tests have the flag, each in a separate run: others would refuse the flag.
.PHONY: update-golden
update-golden: compile-components ## Write the expected results in the testdata of all tests with -update; read the diff before you commit it
	@set -e; for p in $$(git grep -l 'flag.Bool("update"' -- 'pkg/*_test.go' | xargs -n 1 dirname | sort -u); do $(GO) test -timeout 30m ./$$p -update; done

# Not `go mod tidy -diff`: it sorts go.sum in another order than `go mod tidy` writes it.
.PHONY: verify-deps
verify-deps:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	for m in $(ALL_MODULES); do \
		cp $$m/go.mod $$m/go.sum "$$dir"; $(GO) -C $$m mod tidy -modfile="$$dir/go.mod"; \
		for f in go.mod go.sum; do diff -u $$m/$$f "$$dir/$$f" || { echo "$$m/$$f is out of date: run make tidy" >&2; exit 1; }; done; \
	done

.PHONY: tidy
tidy: ## Bring go.mod and go.sum of all modules in step with the code
	@for m in $(ALL_MODULES); do $(GO) -C $$m mod tidy || exit 1; done

# deepcopy-gen writes into the directory of each package. A check generates into files of another name and compares.
GENERATED_PACKAGES := ./pkg/bundle/v1alpha1 ./pkg/scheduler/pluginargs ./pkg/apis/tunnel/v1alpha1 ./pkg/apis/fairlead/v1alpha1 ./pkg/apis/fairlead/v1beta1
DEEPCOPY_GEN = $(GO) tool -modfile=deploy/tools/generators/go.mod deepcopy-gen --go-header-file deploy/tools/generators/header.go.txt

# openapi-gen writes the definitions of the API's types, and of those of apimachinery that they use, into one file.
OPENAPI_DIR := pkg/apis/tunnel/openapi
OPENAPI_GEN = $(GO) tool -modfile=deploy/tools/generators/go.mod openapi-gen --go-header-file deploy/tools/generators/header.go.txt \
	--output-pkg github.com/fairlead-dev/fairlead/$(OPENAPI_DIR) --report-filename /dev/null
OPENAPI_PACKAGES := ./pkg/apis/tunnel/v1alpha1 k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version

# controller-gen writes the CustomResourceDefinitions, from the markers of the types.
CRDS := pkg/apis/fairlead/crds
CONTROLLER_GEN = $(GO) tool -modfile=deploy/tools/controller-gen/go.mod controller-gen crd:allowDangerousTypes=true paths=./pkg/apis/fairlead/v1alpha1 paths=./pkg/apis/fairlead/v1beta1

.PHONY: generate
generate: ## Generate DeepCopy methods, OpenAPI definitions and CustomResourceDefinitions
	@$(DEEPCOPY_GEN) --output-file zz_generated.deepcopy.go $(GENERATED_PACKAGES)
	@$(OPENAPI_GEN) --output-dir $(OPENAPI_DIR) --output-file zz_generated.openapi.go --output-model-name-file zz_generated.model_name.go \
		$(patsubst %,--readonly-pkg %,$(filter k8s.io/%,$(OPENAPI_PACKAGES))) $(OPENAPI_PACKAGES)
	@$(CONTROLLER_GEN) output:crd:dir=$(CRDS)
	@$(GO) -C deploy/tools run ./trimcrds $(abspath $(CRDS))

# go-to-protobuf runs protoc, which is no Go program (Debian: protobuf-compiler), and wants all packages below one
# directory. It writes the tags of fields into the types; a field keeps its number. TestRoundTrip finds forgotten fields.
PROTOBUF_PACKAGE := github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1
PROTOBUF_TOOLS := k8s.io/code-generator/cmd/go-to-protobuf k8s.io/code-generator/cmd/go-to-protobuf/protoc-gen-gogo golang.org/x/tools/cmd/goimports
PROTOBUF_IMPORTS := k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/runtime/schema \
	k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/apis/meta/v1
empty :=
comma := ,

.PHONY: generate-protobuf
generate-protobuf: ## Generate the protobuf encoding of the API tunnel.fairlead.dev; needs protoc
	@command -v protoc >/dev/null || { echo 'protoc is missing: install it (Debian: apt-get install protobuf-compiler)' >&2; exit 1; }
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; mkdir -p "$$dir/bin" "$$dir/src/github.com/fairlead-dev" "$$dir/src/github.com/gogo" "$$dir/src/k8s.io"; \
	for t in $(PROTOBUF_TOOLS); do $(GO) build -modfile=deploy/tools/generators/go.mod -o "$$dir/bin/" $$t; done; \
	ln -s "$(CURDIR)" "$$dir/src/github.com/fairlead-dev/fairlead"; \
	ln -s "$$($(GO) list -m -f '{{.Dir}}' k8s.io/apimachinery)" "$$dir/src/k8s.io/apimachinery"; \
	ln -s "$$($(GO) list -modfile=deploy/tools/generators/go.mod -m -f '{{.Dir}}' github.com/gogo/protobuf)" "$$dir/src/github.com/gogo/protobuf"; \
	PATH="$$dir/bin:$$PATH" go-to-protobuf --go-header-file deploy/tools/generators/header.go.txt --packages $(PROTOBUF_PACKAGE) \
		--apimachinery-packages '$(subst $(empty) ,$(comma),$(addprefix -,$(PROTOBUF_IMPORTS)))' --output-dir "$$dir/src" \
		--proto-import "$$dir/src" --proto-import "$$dir/src/github.com/gogo/protobuf/protobuf"

.PHONY: verify-generated
verify-generated:
	@trap 'rm -f $(addsuffix /zz_verify.deepcopy.go,$(GENERATED_PACKAGES))' EXIT; \
	$(DEEPCOPY_GEN) --output-file zz_verify.deepcopy.go $(GENERATED_PACKAGES); \
	for p in $(GENERATED_PACKAGES); do \
		diff -u $$p/zz_generated.deepcopy.go $$p/zz_verify.deepcopy.go || { echo 'Generated code is out of date: run make generate' >&2; exit 1; }; \
	done
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(OPENAPI_GEN) --output-dir "$$dir" --output-file zz_generated.openapi.go $(OPENAPI_PACKAGES); \
	diff -u $(OPENAPI_DIR)/zz_generated.openapi.go "$$dir"/zz_generated.openapi.go || { echo 'Generated code is out of date: run make generate' >&2; exit 1; }
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; $(CONTROLLER_GEN) output:crd:dir=$$dir; \
	$(GO) -C deploy/tools run ./trimcrds $$dir; \
	diff -ru --exclude='*.go' $(CRDS) $$dir || { echo 'CustomResourceDefinitions are out of date: run make generate' >&2; exit 1; }

.PHONY: lint
lint: ## Run the linters, pinned in deploy/tools/golangci-lint
	$(GOLANGCI_LINT) run
	@for m in $(MODULES); do echo "golangci-lint run, in $$m"; (cd $$m && $(GOLANGCI_LINT) run) || exit 1; done
	@$(MAKE) lint-api

# Kubernetes' conventions for types of APIs. deploy/tools/kube-api-linter/exclusions.yaml has the findings that stay.
API_TYPES := pkg/apis/fairlead/v1alpha1 pkg/apis/fairlead/v1beta1 pkg/bundle/v1alpha1 pkg/apis/tunnel/v1alpha1 pkg/scheduler/pluginargs
.PHONY: lint-api
lint-api: ## Compare the types of the APIs with Kubernetes' conventions
	@$(GO) -C deploy/tools/kube-api-linter run . $(addprefix $(CURDIR)/,$(API_TYPES))

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in code that the programs reach (needs access to vuln.go.dev)
	$(GO) tool -modfile=deploy/tools/govulncheck/go.mod govulncheck ./cmd/...

.PHONY: advisories
advisories: ## Fail if a dependency has an advisory of deploy/advisories.yaml, if that list is older than 30 days, or if Go is older than go.mod's toolchain
	@$(GO) -C deploy/tools run ./advisories -list ../advisories.yaml -mod ../../go.mod $(ADVISORIES_FLAGS)

.PHONY: fmt
fmt: ## Format the code
	$(GOLANGCI_LINT) fmt
	@for m in $(MODULES); do (cd $$m && $(GOLANGCI_LINT) fmt) || exit 1; done

.PHONY: manifests
manifests: build ## Render manifests/ and the kustomize directories
	@$(BIN)/fairlead render --output-dir manifests
	@$(GO) -C deploy/tools run ./kustomize
	@$(GO) -C deploy/tools run ./monitoring

.PHONY: verify-manifests
verify-manifests: build ## Fail if manifests/ or deploy/kustomize are not what `make manifests` renders
	@rm -rf $(OUT)/manifests && mkdir -p $(OUT)
	@$(BIN)/fairlead render --output-dir $(OUT)/manifests
	@diff -ruN manifests $(OUT)/manifests || { echo 'manifests/ is out of date: run make manifests' >&2; exit 1; }
	@$(GO) -C deploy/tools run ./kustomize -check

.PHONY: monitoring
monitoring: ## Render alerts and dashboards into deploy/monitoring
	@$(GO) -C deploy/tools run ./monitoring

# promtool, pinned in deploy/tools/prometheus; without its lists of machines in clouds, which the rules do not need.
PROMTOOL := $(OUT)/prometheus/promtool
.PHONY: verify-monitoring
verify-monitoring: ## Fail if deploy/monitoring is out of date, or if an alert does not fire in its fault or fires in health
	@$(GO) -C deploy/tools run ./monitoring -check
	@mkdir -p $(OUT)/prometheus
	@$(GO) -C deploy/tools/prometheus build -tags remove_all_sd -ldflags '-s -w' -o $(PROMTOOL) github.com/prometheus/prometheus/cmd/promtool
	@$(PROMTOOL) check rules deploy/monitoring/rules.yaml
	@$(PROMTOOL) test rules deploy/monitoring/rules_test.yaml

.PHONY: prometheus
prometheus: ## Build Prometheus into _output/prometheus, for FAIRLEAD_E2E_PROMETHEUS of e2e/suite
	@mkdir -p $(OUT)/prometheus
	@$(GO) -C deploy/tools/prometheus build -tags remove_all_sd -ldflags '-s -w' -o $(OUT)/prometheus/ github.com/prometheus/prometheus/cmd/prometheus

.PHONY: panels
panels: export FAIRLEAD_E2E_BIN := $(BIN)
panels: build compile-components prometheus ## Draw the dashboards as SVG into _output/panels, from a Prometheus that scrapes an embedded cluster during calls and failures
	@PROVIDER=embedded FAIRLEAD_E2E_PROMETHEUS=$(OUT)/prometheus/prometheus FAIRLEAD_E2E_PANELS=$(OUT)/panels $(GO) test -count 1 -timeout 20m -v -run '^TestPanels$$' ./e2e/suite

.PHONY: update-reference
update-reference: ## Render the reference of the command line: docs/cli and docs/man
	@$(GO) -C deploy/tools run ./reference

.PHONY: verify-reference
verify-reference: ## Fail if docs/cli or docs/man are not what the commands say
	@$(GO) -C deploy/tools run ./reference -check

# Features that came after commit 7a2c5cd, see CONTRIBUTING.md.
NEW_PACKAGES := gateway apis observe tunnelapi crd operator sysdump monitoring

.PHONY: size
size: ## Print the figures of CONTRIBUTING.md: lines of the modules, and files per package
	@nested=$$(git ls-files '*/go.mod' | xargs -n 1 dirname | paste -sd '|'); \
	echo "root module: $$(git ls-files '*.go' | grep -vE "^($$nested)/" | xargs cat | wc -l) lines"; \
	echo "new packages of it: $$(git ls-files $(NEW_PACKAGES:%='pkg/%/*.go') | xargs cat | wc -l) lines"; \
	echo "nested modules: $$(git ls-files '*.go' | grep -E "^($$nested)/" | xargs cat | wc -l) lines"
	@git ls-files 'pkg/*.go' 'cmd/*.go' | grep -v '_test\.go$$' | xargs -n 1 dirname | sort | uniq -c | sort -n | \
	awk '{ files += $$1; of[NR] = $$1; few += $$1 <= 3; many += $$1 > 12 } END { printf "files without tests in pkg and cmd: %d in %d packages, mean %.1f, median %d; %d packages have at most 3, %d more than 12\n", \
		files, NR, files / NR, of[int((NR + 1) / 2)], few, many }'

# Files besides Go's that have a license header, but for those that programs write and inputs of tests.
HAND_WRITTEN := '*.yaml' '*.yml' '*.sh' '*.tpl' Makefile Dockerfile .ci/run
NOT_HAND_WRITTEN := (^|/)testdata/|^manifests/|^pkg/apis/fairlead/crds/|^deploy/monitoring/|^deploy/kustomize/[^/]*/(objects|kustomization)\.yaml
.PHONY: verify-licenses
verify-licenses:
	@missing=$$({ git ls-files '*.go' | xargs -r grep -L '^// SPDX-License-Identifier: Apache-2.0$$'; \
	git ls-files $(HAND_WRITTEN) | grep -vE '$(NOT_HAND_WRITTEN)' | xargs -r grep -LE '^(#|\{\{- /\*) SPDX-License-Identifier: Apache-2.0( \*/ -\}\})?$$'; } || true); \
	[ -z "$$missing" ] || { echo "These files lack a line with SPDX-License-Identifier: Apache-2.0 in a comment:" >&2; echo "$$missing" >&2; exit 1; }

# The part of the linters that finds calls such as klog.V(2).Infof and log.Printf: see forbidigo in .golangci.yaml.
.PHONY: verify-logging
verify-logging:
	@$(GOLANGCI_LINT) run --enable-only forbidigo
	@for m in $(MODULES); do (cd $$m && $(GOLANGCI_LINT) run --enable-only forbidigo) || exit 1; done

.PHONY: update-components
update-components: ## Bring the components' module in step with go.mod
	@$(GO) run ./pkg/components/update

.PHONY: verify-api
verify-api: ## Compare the Go API with the newest release's, or with API_BASE: CHANGELOG.md has to name what is incompatible
	@$(GO) -C deploy/tools run ./apidiff -base '$(API_BASE)' ../..

.PHONY: verify-components
verify-components: ## Fail if the components' module is out of step with go.mod
	@$(GO) run ./pkg/components/update -check

##@ Help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
