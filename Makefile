# keypost's chores. Tools are pinned by test/tools and cached outside the tree ($KEYPOST_CACHE, default ~/.cache/keypost).
GO ?= go

.PHONY: help run build references test test-race lint vuln fuzz e2e chart e2e-full bench durability-full attack tools stats clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

run: build ## Try it: a development issuer on loopback, published and verified; stays in the foreground
	@test/demo/run

# grpcnotrace leaves out pages that nobody serves. With them goes html/template, for which the linker keeps every exported method: a
# quarter of keypost-signer, which each control plane node has in memory.
build: ## Build keypost, keypostd and keypost-signer into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -tags grpcnotrace -o bin/ ./cmd/keypost ./cmd/keypostd ./cmd/keypost-signer

references: ## Write anew what docs/ says of the programs, from the programs
	KEYPOST_UPDATE=1 $(GO) test -count=1 -run 'Reference$$|^TestEveryCommandHonoursOutput$$|^TestREADME$$|^TestTroubleshooting$$|^TestPage$$' ./cmd/keypost ./cmd/keypostd ./test/reference ./issuer/verify ./keystore/party

# The tests wait more than they work: several packages and tests at a time. The race detector watches the rooms that start
# goroutines; what has none of its own takes three times as long under it, and CI runs it so every night (test-race). Style is lint's,
# so that vet is not run twice. What takes longest is named first: nothing is to run alone at the end.
TESTS = $(GO) test -count=1 -vet=off -timeout 20m -p 4 $(TESTFLAGS)
RACES = ./cmd/keypostd/... ./cmd/keypost-signer/... ./internal/admin ./internal/hang ./issuer ./issuer/listen/... ./issuer/signer/... ./issuer/verify \
	./issuer/verify/watch ./keystore/catalog ./keystore/filestore ./keystore/replicate ./keystore/storetest ./provision/cloud/... ./provision/plan/...

test: ## Run every test that needs nothing but Go, where it matters under the race detector
	@failed=0; \
	$(TESTS) -race $(RACES) || failed=1; \
	$(TESTS) -parallel 8 $$($(GO) list ./cmd/keypost/... ./test/... ./... | grep -vxF "$$($(GO) list $(RACES))") || failed=1; \
	exit $$failed

test-race: ## Run every test under the race detector
	$(TESTS) -race ./...

tools: ## Install the pinned tools that lint, vuln and e2e use
	test/tools/all

lint: ## Check style and common mistakes
	test/tools/lint

vuln: ## Check the linked code against the Go vulnerability database
	test/tools/vuln

fuzz: ## Fuzz each target for 30 s, raw connections for 10 min (FUZZTIME=5m for other times, FUZZTARGET=FuzzConnection for one)
	test/tools/fuzz $(FUZZTARGET)

e2e: ## Prove it on a real kube-apiserver, etcd and relying parties
	test/e2e/run

chart: ## Hold the chart, its alerts and the release against the real helm, promtool and kube-apiserver
	test/chart/run

e2e-full: export KEYPOST_E2E_FULL = 1
e2e-full: e2e chart durability-full ## All that is too long for CI, a node with containers and three replicas among it
	test/tools/kube
	KEYPOST_LONG=1 $(GO) test -count=1 ./keystore
	$(GO) test -count=1 -v -timeout 25m -tags e2e_full ./test/replicas
	test/chart/node
	test/parties/run
	test/attack/run

attack: ## Attack keypostd in a memory cgroup, and nginx beside it
	test/attack/run

durability-full: ## Kill writers thousands of times
	KEYPOST_KILLS=5000 $(GO) test -count=1 -v -timeout 60m ./test/durability

bench: ## Measure CPU per request, memory, start and changes; fails when a bar is missed (BENCHFLAGS=-signer for keypost-signer only)
	test/bench/run $(BENCHFLAGS)

clean: ## Remove what build made
	rm -rf bin
