# What a developer and CI run. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Tools are built from source at these versions, into a directory of this clone.
GOLANGCI_LINT_VERSION := v2.15.0
BENCHSTAT_VERSION     := v0.0.0-20260908200009-22c9c6c9d4da
VERSITYGW_VERSION     := v1.8.0
NATS_SERVER_VERSION   := v2.15.3
KUSTOMIZE_VERSION     := v5.7.1
PROMTOOL_VERSION      := v0.316.0
GOVULNCHECK_VERSION   := v1.9.0
CYCLONEDX_VERSION     := v1.10.0
# The database of vulnerabilities as a Go module: what is known by that day.
VULNDB_VERSION        := v0.0.0-20261105234957-e22db6528018

TOOLS  := $(CURDIR)/.tools/bin
LINT   := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
VERSITYGW := $(TOOLS)/versitygw-$(VERSITYGW_VERSION)
NATS_SERVER := $(TOOLS)/nats-server-$(NATS_SERVER_VERSION)
PROMTOOL := $(TOOLS)/promtool-$(PROMTOOL_VERSION)
BIN    := bin/millrace
VENV   := .venv
# What checks deploy/ has a place of its own, so that neither's packages bind the other's.
DEPLOY_VENV := $(CURDIR)/.tools/deploy
# kubectl has a kustomize in it.
KUBECTL   := $(shell command -v kubectl)
KUSTOMIZE := $(if $(KUBECTL),kubectl kustomize,$(TOOLS)/kustomize-$(KUSTOMIZE_VERSION) build)

# Iceberg's runtime for Spark, of the release of e2e/python/requirements.txt, and what it needs
# to reach S3; Maven brings them.
SPARK_ICEBERG         := iceberg-spark-runtime-4.0_2.13
SPARK_ICEBERG_VERSION := 1.10.1
SPARK_JARS            := $(CURDIR)/.tools/$(SPARK_ICEBERG)-$(SPARK_ICEBERG_VERSION).jar $(CURDIR)/.tools/iceberg-aws-bundle-$(SPARK_ICEBERG_VERSION).jar
EMPTY                 :=
COMMA                 := ,

# Catalogs that others made, which lake tables are committed to: the jars of Iceberg's REST
# server, and a Hive metastore with an empty database.
CATALOG_JARS := $(CURDIR)/.tools/catalogs
HIVE_VERSION := 4.0.1
HIVE         := $(CURDIR)/.tools/hive-$(HIVE_VERSION)
PYTHON ?= python3

# How long `make fuzz` spends on each target.
FUZZTIME ?= 30s

export CGO_ENABLED ?= 0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What a binary says of itself. The same commit gives the same bytes, wherever and whenever it is built.
VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo v0.0.0-dev$$(git describe --always --dirty --exclude '*' 2>/dev/null | grep -o -- '-dirty$$'))
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
COMMITTED ?= $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
STAMP   := -X main.buildVersion=$(VERSION) -X main.buildCommit=$(COMMIT) -X main.buildDate=$(COMMITTED)

.PHONY: build
build: ## the binary, bin/millrace
	go build -trimpath -buildvcs=false -ldflags '$(STAMP)' -o $(BIN) ./cmd/millrace

.PHONY: demo
demo: build ## load real flights, show what the server does, leave it running
	demo/run

.PHONY: cluster-demo
cluster-demo: build ## a cluster on this machine: loads the flights, kills a worker in the middle, stops at the end
	demo/cluster

.PHONY: test
test: $(VERSITYGW) $(NATS_SERVER) ## unit, model, fault and end-to-end tests (needs Go and curl)
	go test -timeout 30m ./...
	MILLRACE_TEST_SHARDS=remote go test -timeout 10m ./router
	MILLRACE_TEST_SHARDS=moving go test -timeout 10m ./router

# What is of one process, its files and its memory: not asked of a cluster.
SINGLE := Release|Guide|Demo|FullDisk|DiskFull|Memory|Bounded|Overload|Cluster(Torture|FailOver|PlannedMoves|Partitions|ObjectStoreFaults|DiskFull|Mistake)

.PHONY: cluster-test
cluster-test: build $(NATS_SERVER) $(VERSITYGW) ## the end-to-end tests against a cluster: a front, a nats-server and two workers each
	E2E_CLUSTER=1 E2E_MILLRACE=$(CURDIR)/$(BIN) E2E_KILLS=5 go test -count 1 -timeout 20m ./e2e -skip '$(SINGLE)'

.PHONY: interop
interop: build deploy-check $(VENV)/.installed $(SPARK_JARS) $(VERSITYGW) $(NATS_SERVER) $(HIVE)/.installed ## the real binary, alone and as a cluster, against stock pyarrow, pandas, polars, pyiceberg, DuckDB and Spark, and catalogs of others
	E2E_MILLRACE=$(CURDIR)/$(BIN) E2E_SPARK_ICEBERG=$(subst $(EMPTY) $(EMPTY),$(COMMA),$(SPARK_JARS)) \
		E2E_CATALOG_JARS=$(CATALOG_JARS) E2E_HIVE=$(HIVE) $(VENV)/bin/python -m pytest -q e2e/python
	E2E_MILLRACE=$(CURDIR)/$(BIN) E2E_NATS_SERVER=$(NATS_SERVER) $(VENV)/bin/python -m pytest -q e2e/python -m 'not spark and not alone'

# Part of interop, since what it checks with comes from PyPI.
.PHONY: deploy-check
deploy-check: $(NATS_SERVER) $(DEPLOY_VENV)/.installed $(if $(KUBECTL),,$(TOOLS)/kustomize-$(KUSTOMIZE_VERSION)) ## deploy/ by nats-server, systemd, the schemas of Compose and Kubernetes
	NATS_SERVER=$(NATS_SERVER) VENV=$(DEPLOY_VENV) KUSTOMIZE="$(KUSTOMIZE)" PROMTOOL=$(or $(wildcard $(PROMTOOL)),promtool) deploy/check

# Not part of what checks: ten CPU-minutes for one file. A test of ours looks up the names in it.
.PHONY: promtool
promtool: $(PROMTOOL) ## Prometheus's promtool, with which deploy-check reads the alerts

$(PROMTOOL):
	GOBIN=$(TOOLS) go install github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL_VERSION)
	mv $(TOOLS)/promtool $@

$(DEPLOY_VENV)/.installed: deploy/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(VENV)/.installed: e2e/python/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(SPARK_JARS):
	timeout 120 mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:2.8:copy -DoutputDirectory=$(@D) \
		-Dartifact=org.apache.iceberg:$(patsubst %-$(SPARK_ICEBERG_VERSION).jar,%,$(@F)):$(SPARK_ICEBERG_VERSION)

$(CATALOG_JARS)/.installed: e2e/catalogs/pom.xml
	rm -rf $(@D)
	timeout 300 mvn -q -B -f $< org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies -DoutputDirectory=$(@D)
	touch $@

# Over Derby a metastore can compare pointers only when their column is no CLOB.
$(HIVE)/.installed: $(CATALOG_JARS)/.installed
	rm -rf $(@D)
	timeout 300 mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:2.8:copy -DoutputDirectory=$(@D) \
		-Dartifact=org.apache.hive:hive-standalone-metastore-server:$(HIVE_VERSION):tar.gz:bin
	tar -xzf $(@D)/*.tar.gz -C $(@D) --strip-components 1
	rm $(@D)/*.tar.gz $(@D)/lib/mysql-*.jar $(@D)/lib/mssql-*.jar
	sed -i '/"APP"."TABLE_PARAMS" (/s/"PARAM_VALUE" CLOB/"PARAM_VALUE" VARCHAR(4000)/' $(@D)/scripts/metastore/upgrade/derby/hive-schema-4*.derby.sql
	cd $(@D) && METASTORE_HOME=$(@D) timeout 300 java -Dderby.system.durability=test -cp 'lib/*:$(CATALOG_JARS)/*' \
		org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool -dbType derby -initSchema \
		-url 'jdbc:derby:;databaseName=$(@D)/derby;create=true' -driver org.apache.derby.jdbc.EmbeddedDriver -userName APP -passWord mine > schema.log 2>&1
	touch $@

# A step of CI, and not part of check: two CPU-minutes. What it may find is in .ci/vulnerabilities, and nothing else.
.PHONY: vuln
vuln: vuln-db $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION) ## known vulnerabilities in what the binary calls, by a database that the Go module proxy has
	.ci/vuln .ci/vulnerabilities $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION) -db "file://$$(go mod download -json golang.org/x/vulndb@$(VULNDB_VERSION) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/data/osv" ./cmd/millrace

.PHONY: vuln-db
vuln-db: ## brings the database of vulnerabilities, as of VULNDB_VERSION
	@go mod download golang.org/x/vulndb@$(VULNDB_VERSION) || { echo "vuln: NOT LOOKED: the database of vulnerabilities, golang.org/x/vulndb $(VULNDB_VERSION), is not to be had from $$(go env GOPROXY)"; exit 1; }

# All modules are at hand after a build; the tool would ask the proxy for this one.
.PHONY: sbom
sbom: build $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION) ## what the binary is made of, as CycloneDX: bin/millrace.cdx.json
	@GOPROXY=off $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION) bin -json -std -licenses -noserial -notimestamp -version $(VERSION) -output $(BIN).cdx.json $(BIN) 2> $(BIN).cdx.log || { cat $(BIN).cdx.log; exit 1; }
	@.ci/sbom $(BIN).cdx.json

.PHONY: reproducible
reproducible: ## the same commit, built in two places with caches of their own, gives the same bytes (eight CPU-minutes)
	@work=$$(mktemp -d); trap 'chmod -R u+w "$$work"; rm -r "$$work"' EXIT; \
	for place in one a/longer/place; do \
		mkdir -p "$$work/$$place/go/pkg"; ln -s "$$(go env GOMODCACHE)" "$$work/$$place/go/pkg/mod"; \
		git archive --prefix=src/ HEAD | tar -x -C "$$work/$$place"; \
		GOPATH="$$work/$$place/go" GOMODCACHE="$$work/$$place/go/pkg/mod" GOCACHE="$$work/$$place/cache" \
			$(MAKE) --no-print-directory -C "$$work/$$place/src" build VERSION=$(VERSION) COMMIT=$(COMMIT) COMMITTED=$(COMMITTED); \
	done; \
	sha256sum "$$work"/one/src/$(BIN) "$$work"/a/longer/place/src/$(BIN); \
	cmp "$$work"/one/src/$(BIN) "$$work"/a/longer/place/src/$(BIN) && echo "the same bytes"

.PHONY: race
race: $(VERSITYGW) $(NATS_SERVER) ## unit tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -timeout 30m $$(go list ./... | grep -v '/e2e$$')

.PHONY: lint
lint: $(LINT) ## golangci-lint, import directions included
	$(LINT) run ./...

.PHONY: fmt
fmt: $(LINT) ## format the source
	$(LINT) fmt ./...

.PHONY: sim
sim: ## thousands of runs of the simulation, beyond those of its test
	SIM_SEED=100000 SIM_RUNS=2000 go test -count 1 -timeout 30m ./cluster/sim

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (30s)
	@go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}' ./... | while read -r dir pkg; do \
		{ grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$$dir"/*_test.go || true; } | sed 's/^func //' | while read -r target; do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" < /dev/null; \
		done; \
	done

.PHONY: torture
torture: ## the long forms: 500 kills, loads of 5 GB, 100 times the model operations
	E2E_KILLS=500 E2E_LOAD_MB=5000 go test -count 1 -timeout 6h -v -run 'Kill|Memory|Bounded' ./e2e
	E2E_OVERLOAD_SECONDS=60 E2E_OVERLOAD_CONNECTIONS=5000 E2E_OVERLOAD_MB=2600 go test -count 1 -timeout 1h -v -run '^TestOverload$$' ./e2e
	E2E_CLUSTER_SECONDS=3600 go test -count 1 -timeout 3h -v -run ClusterTorture ./e2e
	E2E_CLUSTER_MOVES=30 E2E_CLUSTER_CUTS=18 E2E_STORE_SECONDS=600 go test -count 1 -timeout 3h -v -run 'Cluster(PlannedMoves|Partitions|ObjectStoreFaults|DiskFull)' ./e2e
	SIM_RUNS=100000 go test -count 1 -timeout 6h ./cluster/sim
	go test -count 1 -timeout 6h $$(go list ./... | grep -v '/e2e$$') -rapid.checks=10000
	LAKE_THROUGH_FAULTS=1 go test -count 1 -timeout 1h -skip Golden ./tier/iceberg
	MILLRACE_FAULTS_PHASE=60s go test -count 1 -timeout 1h -v -run TestFaultyLake ./server

.PHONY: bench
bench: build $(VENV)/.installed ## side-by-side benchmarks against raw yardsticks, into bench/results (about ten minutes)
	@command -v redis-server >/dev/null || apt-get install -q -y redis-server || echo "no redis-server, and it could not be installed: R7 goes without"
	go build -trimpath -o bin/bench ./bench
	bin/bench -results bench/results

.PHONY: bench-short
bench-short: build ## the same in seconds: everything runs, the figures mean little
	go build -trimpath -o bin/bench ./bench
	bin/bench -short

.PHONY: cluster-bench
cluster-bench: build $(NATS_SERVER) $(VERSITYGW) ## clusters on this machine: throughput of one to three workers, thousands of buckets, fail-over with 2 GiB of state (half an hour, 25 GB of disk)
	go build -trimpath -o bin/bench ./bench
	bin/bench -only R1CL,R17,R18 -results bench/results
	E2E_MILLRACE=$(CURDIR)/$(BIN) E2E_FAILOVER_MB=2048 E2E_FAILOVER_TIMES=3 go test -count 1 -timeout 1h -v -run ClusterFailOver ./e2e

.PHONY: bench-micro
bench-micro: $(TOOLS)/benchstat-$(BENCHSTAT_VERSION) ## micro-benchmarks of the packages, six times each
	go test -run '^$$' -bench . -benchmem -count 6 ./... | $< /dev/stdin

.PHONY: generate
generate: ## renew what is generated from openapi/openapi.yaml
	go generate ./...

.PHONY: check
check: build ## build, vet, lint; generate leaves the tree clean
	go vet ./...
	$(MAKE) lint
	$(MAKE) generate
	git diff --exit-code -- $$(git ls-files '*.gen.go')
	@new=$$(git ls-files --others --exclude-standard -- '*.gen.go'); test -z "$$new" || { echo "generated and not committed: $$new"; exit 1; }

.PHONY: tools
tools: $(LINT) $(VERSITYGW) $(NATS_SERVER) $(TOOLS)/benchstat-$(BENCHSTAT_VERSION) ## the pinned tools, into .tools/bin

$(LINT):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(TOOLS)/golangci-lint $@

$(TOOLS)/benchstat-$(BENCHSTAT_VERSION):
	GOBIN=$(TOOLS) go install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION)
	mv $(TOOLS)/benchstat $@

$(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION):
	GOBIN=$(TOOLS) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	mv $(TOOLS)/govulncheck $@

$(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION):
	GOBIN=$(TOOLS) go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)
	mv $(TOOLS)/cyclonedx-gomod $@

$(TOOLS)/kustomize-$(KUSTOMIZE_VERSION):
	GOBIN=$(TOOLS) go install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_VERSION)
	mv $(TOOLS)/kustomize $@

# The S3 server that tests start; they ask for its path by this. Two that build it at
# once each put a whole file in its place.
.PHONY: versitygw
versitygw: $(VERSITYGW)
	@echo $(VERSITYGW)

$(VERSITYGW):
	@mkdir -p $(TOOLS)
	@dir=$$(mktemp -d $(TOOLS)/versitygw.XXXXXX); trap 'rm -r "$$dir"' EXIT; \
		GOBIN="$$dir" go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION) 1>&2; \
		mv "$$dir/versitygw" $@

# The servers of a cluster that tests start; they ask for their path by this.
.PHONY: nats-server
nats-server: $(NATS_SERVER)
	@echo $(NATS_SERVER)

$(NATS_SERVER):
	@mkdir -p $(TOOLS)
	@dir=$$(mktemp -d $(TOOLS)/nats-server.XXXXXX); trap 'rm -r "$$dir"' EXIT; \
		GOBIN="$$dir" go install github.com/nats-io/nats-server/v2@$(NATS_SERVER_VERSION) 1>&2; \
		mv "$$dir/nats-server" $@
