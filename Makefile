# Fairlead. `make` lists what there is; `make up` and `make test` are where to start. Only Go is needed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# One set of build flags for every Go command, here and in deploy/components: Go's build cache keeps packages apart that
# were compiled with different flags, and Kubernetes takes minutes to compile. No cgo: the binaries are static and need
# no C compiler. -trimpath and -buildvcs=false: they do not depend on where and from which commit they are built.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

BIN := $(CURDIR)/bin
OUT := $(CURDIR)/_output
GO ?= go

VERSION ?= $(shell git describe --tags --dirty 2>/dev/null || git describe --always --dirty 2>/dev/null | sed 's/^/v0.0.0-/')
# Kubernetes' version stands in go.mod. Its packages report it only if it is stamped into the binary.
KUBERNETES_VERSION = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
LDFLAGS = -s -w $(if $(VERSION),-X github.com/fairlead-dev/fairlead/pkg/version.version=$(VERSION)) \
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

.PHONY: up
up: build ## Bring up a cluster on this machine and verify it (UP_FLAGS)
	@$(BIN)/fairlead up $(UP_FLAGS)

.PHONY: down
down: build ## Remove the cluster (DOWN_FLAGS)
	@$(BIN)/fairlead down $(DOWN_FLAGS)

.PHONY: status
status: build ## Show the cluster's processes (STATUS_FLAGS)
	@$(BIN)/fairlead status $(STATUS_FLAGS)

##@ Build

.PHONY: build
build: ## Build all programs of this repository into bin/
	@mkdir -p $(BIN)
	@[ -x $(BIN)/fairlead ] || echo 'Building the programs of this repository; with cold caches this takes some minutes ...'
	@$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

.PHONY: images
images: export GOOS := linux
images: build ## Make the container images that the default bundle names, as archives in _output/images, and load them into docker if it is there
	@env -u GOOS $(GO) run ./deploy/tools/images

.PHONY: node-image
node-image: build ## Build an image for kind's nodes with no registry, see e2e/nodeimage (needs root, Debian and docker) (NODE_IMAGE_FLAGS)
	@$(GO) run ./e2e/nodeimage $(NODE_IMAGE_FLAGS)

.PHONY: clean
clean: ## Remove what was built here; clusters and Go's caches stay
	@rm -rf $(BIN) $(OUT)

##@ Test

.PHONY: test
test: test-local e2e ## Run all tests: unit, integration with a real API server, and end to end on a cluster (TEST_FLAGS)

.PHONY: test-local
test-local: build compile-components
	$(GO) test -timeout 30m $(TEST_FLAGS) $$($(GO) list ./... | grep -v /e2e)

# Never from the cache, because Go does not see which programs they start. Packages one after the other, because each has
# limits of time. Each has a cluster of its own, which it removes, also after a failure or Ctrl-C.
PROVIDER ?= embedded
ifeq ($(PROVIDER),kind)
E2E_PACKAGES := ./e2e/suite ./e2e/kind/...
# E2E_NODE_IMAGE=kindest/node:… takes another image than the one that is built here.
ifndef E2E_NODE_IMAGE
e2e: node-image
endif
else
E2E_PACKAGES := ./e2e/...
endif
GOTESTSUM = $(GO) tool -modfile=deploy/tools/gotestsum/go.mod gotestsum

.PHONY: e2e
e2e: export PROVIDER := $(PROVIDER)
e2e: export FAIRLEAD_E2E_BIN := $(BIN)
e2e: build compile-components ## Run the end-to-end tests: real clusters, all checks, bad input (PROVIDER=embedded|kind, TEST_FLAGS)
	@mkdir -p $(OUT)/e2e
	$(GOTESTSUM) --format testname --junitfile $(OUT)/e2e/$(PROVIDER).xml --junitfile-project-name fairlead \
		-- -timeout 60m -count 1 -p 1 $(TEST_FLAGS) $(E2E_PACKAGES)

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane (TEST_FLAGS)
	$(GO) test -short -timeout 10m $(TEST_FLAGS) $$($(GO) list ./... | grep -v /e2e)

# The race detector needs cgo and compiles all dependencies again: these are the packages with concurrency of their own.
RACE_LONG := ^(TestManyDials|TestSilentNetwork|TestReviewSlowOrFailing)$$
RACE_PROGRAMS := ^(TestRough|TestAgentRollout)$$
RACE_PACKAGES := ./pkg/daemon ./pkg/check/... ./pkg/cluster/... ./pkg/cli/... ./pkg/konnectivity/... \
	./pkg/scheduler/politeevents ./pkg/scheduler/plugins/... ./pkg/scheduler/tunnelcondition

.PHONY: test-race
test-race: ## Run the tests of concurrent code under the race detector (needs gcc) (TEST_FLAGS)
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m $(TEST_FLAGS) $(RACE_PACKAGES)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m $(TEST_FLAGS) -run '$(RACE_LONG)' ./pkg/konnectivity/konntest
	FAIRLEAD_TEST_RACE=1 $(GO) test -count 1 -timeout 20m $(TEST_FLAGS) -run '$(RACE_PROGRAMS)' ./e2e/tunnel

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

# With PROVIDER=kind, beside plain kind, whose command is built for that.
.PHONY: bench-up
bench-up: build ## Measure bring-up: cold, warm, and memory; with PROVIDER=kind beside plain kind (BENCH_FLAGS)
ifeq ($(PROVIDER),kind)
	@mkdir -p $(OUT)
	@$(GO) build -o $(OUT)/kind sigs.k8s.io/kind
endif
	@$(GO) run ./deploy/tools/benchup $(if $(PROVIDER),-provider $(PROVIDER)) $(BENCH_FLAGS)

# Both pairs are built alike, as programs of their own.
BENCH_TUNNEL := $(OUT)/bench-tunnel
BENCH_SERVER := $(BENCH_TUNNEL)/ours/konnectivity-server
BENCH_AGENT := $(BENCH_TUNNEL)/ours/konnectivity-agent
BENCH_PAIRS := upstream=$(BENCH_TUNNEL)/upstream/server:$(BENCH_TUNNEL)/upstream/agent,ours=$(BENCH_SERVER):$(BENCH_AGENT)
BENCH_MIXED := ours+upstream=$(BENCH_SERVER):$(BENCH_TUNNEL)/upstream/agent,upstream+ours=$(BENCH_TUNNEL)/upstream/server:$(BENCH_AGENT)
.PHONY: bench-tunnel
bench-tunnel: ## Measure our tunnel beside upstream's, ssh -D and others, see docs/tunnel-benchmark.md; takes about 40 minutes (BENCH_FLAGS, for example '-goals -only down,up,dial,echo -reps 1')
	@mkdir -p $(BENCH_TUNNEL)/ours $(BENCH_TUNNEL)/upstream
	@$(GO) build -o $(BENCH_TUNNEL)/bench-tunnel ./e2e/bench-tunnel
	@$(GO) build -ldflags '$(LDFLAGS)' -o $(BENCH_TUNNEL)/ours/ ./cmd/konnectivity-server ./cmd/konnectivity-agent
	@$(GO) build -o $(BENCH_TUNNEL)/upstream/ sigs.k8s.io/apiserver-network-proxy/cmd/server sigs.k8s.io/apiserver-network-proxy/cmd/agent
	@$(BENCH_TUNNEL)/bench-tunnel -pairs '$(BENCH_PAIRS),$(BENCH_MIXED)' $(BENCH_FLAGS)

.PHONY: bench-mux
bench-mux: ## Compare ways to carry many connections over one: our link, yamux, HTTP/2, QUIC
	@cd e2e/bench-tunnel/mux && $(GO) run . $(BENCH_FLAGS)

BENCH_SCHEDULER := $(OUT)/bench-scheduler
.PHONY: bench-scheduler
bench-scheduler: build compile-components ## Measure the second scheduler beside kube-scheduler, see docs/scheduler-benchmark.md; takes about 45 minutes (BENCH_FLAGS)
	@mkdir -p $(BENCH_SCHEDULER)
	@$(GO) build -o $(BIN)/bench-scheduler ./e2e/bench-scheduler
	@$(BIN)/bench-scheduler -results $(BENCH_SCHEDULER)/results.jsonl $(BENCH_FLAGS)

# Compiles etcd, kwok and Kubernetes into Go's build cache, without linking. Tests that start them find them compiled,
# instead of compiling the same packages beside `go test` on a cold cache.
.PHONY: compile-components
compile-components:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	cp deploy/components/components.mod "$$dir/go.mod"; cp deploy/components/components.sum "$$dir/go.sum"; cd "$$dir"; \
	$(GO) build $$($(GO) list tool | grep -Ev '/(kubectl|kubelet|kubeadm|kube-proxy)$$')

##@ Check

.PHONY: lint
lint: ## Run the linters, pinned in deploy/tools/golangci-lint
	$(GO) tool -modfile=deploy/tools/golangci-lint/go.mod golangci-lint run
	cd e2e/bench-tunnel/mux && $(GO) vet ./... # a module of its own, which nothing else compiles

.PHONY: fmt
fmt: ## Format the code
	$(GO) tool -modfile=deploy/tools/golangci-lint/go.mod golangci-lint fmt

.PHONY: manifests
manifests: build ## Render manifests/, the kustomize directories and the Helm chart
	@$(BIN)/fairlead render --output-dir manifests
	@$(GO) run ./deploy/tools/packages

.PHONY: verify-manifests
verify-manifests: build ## Fail if manifests/, kustomize or Helm chart are not what `make manifests` renders
	@rm -rf $(OUT)/manifests && mkdir -p $(OUT)
	@$(BIN)/fairlead render --output-dir $(OUT)/manifests
	@diff -ruN manifests $(OUT)/manifests || { echo 'manifests/ is out of date: run make manifests' >&2; exit 1; }
	@$(GO) run ./deploy/tools/packages -check

.PHONY: update-components
update-components: ## Bring the components' module in step with go.mod
	@$(GO) run ./deploy/components/update

.PHONY: verify-components
verify-components: ## Fail if the components' module is out of step with go.mod
	@$(GO) run ./deploy/components/update -check

##@ Help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
