# Penstock: one entry for everything that a developer or CI runs. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MODULES := . engine
BIN := bin/penstock
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help
help: ## Print every target.
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: build
build: ## Build the program into bin/.
	cd engine && go build -trimpath -o ../$(BIN) ./cmd/penstock

.PHONY: check
check: export CGO_ENABLED := 0
check: export GOFLAGS := $(strip $(GOFLAGS) -trimpath -vet=off) # the stage vet has the checks that go test would repeat
check: format vet lint test race slim grpc compare kills-short workers-short agree-short files-short faults-short kafka-short cluster-short notify-load-short dashboard-short terminal-short way-back deploy-check dist-short quickstart examples unchanged ## All of CI, from a fresh clone. All stages build like `make dist`, so that each package is compiled once.

.PHONY: format
format: ## gofmt changes nothing.
	@ugly=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$ugly" ]; then echo "gofmt would change: $$ugly"; exit 1; fi

.PHONY: vet
vet: export CGO_ENABLED := 0
vet: ## go vet of both modules; for darwin and windows the types only, since compiling all packages for each takes minutes.
	@for m in $(MODULES); do echo "vet $$m"; (cd $$m && go vet ./...); done
	@go run ./.ci/typecheck darwin windows

.PHONY: lint
lint: ## staticcheck, with the exceptions and reasons in staticcheck.conf; the house's own rules are engine/internal/archtest.
	@for m in $(MODULES); do echo "staticcheck $$m"; (cd $$m && go run $(STATICCHECK) ./...); done

.PHONY: test
test: ## The tests of both modules (what the README calls).
	go test work

.PHONY: test-full
test-full: ## The same with all seeds, states and crashes, of which go test tries some: ten minutes or more.
	PENSTOCK_TESTS=full go test -count=1 -timeout 30m work

.PHONY: race
race: export CGO_ENABLED := 1
race: export GORACE = atexit_sleep_ms=0 # else each child that a test starts sleeps a second before it ends
race: ## The short tests under the race detector, of packages that use goroutines or locks.
	@go test -race -short -parallel 2 -skip '^($(SEQUENTIAL))$$' $(UNTRACKED) $$(go list -f '{{.Dir}} {{.ImportPath}}' work | grep -vE '/($(RACELESS))$$' | \
	  while read -r dir path; do if grep -qE '$(CONCURRENT)' "$$dir"/*.go; then echo "$$path"; fi; done)
# Tests of one goroutine that take long with the detector, and one of a program that is built without it.
SEQUENTIAL := TestBitFlipAtEveryByte|TestTornTailAtEveryByte|TestSizeUnderChurn|TestLongLastLetter|TestReplayIsExact|TestFilesStayInProportion|TestMemoryOfRanges|TestRotationKilled
# Pure packages, and tests of a program that is built without the detector.
RACELESS := flow/control|internal/lab/flowsim|internal/archtest|internal/endtoend|internal/faults
# SQLite keeps its data and locks in memory that the detector does not track.
UNTRACKED := -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false
CONCURRENT := \<go (func|[a-z.]+\()|^\s*(import )?([a-z]+ )?"(sync(/atomic)?|testing/synctest|net/http[a-z/]*|[a-z./-]+/penstock/(supervise|flow|retry))"

.PHONY: slim
slim: ## The root module requires nothing.
	@test "$$(GOWORK=off go list -m all | wc -l)" = 1

.PHONY: grpc
grpc: ## Vet and test the interceptors for gRPC and connect, a module of its own.
	cd grpc && GOWORK=off go vet ./... && GOWORK=off go test ./...

.PHONY: compare
compare: ## Compile the programs of docs/coming-from-go.md beside those with other libraries, and compare their lines; backoff/compat beside its originals.
	cd bench/compare && GOWORK=off go vet ./... && GOWORK=off go test -count=1 -v .
	cd bench/backoff && GOWORK=off go vet ./... && GOWORK=off go test -count=1 .

.PHONY: crash
crash: ## kill -9 of the real program, 200 times (KILLS=n) and as often for SQL: nothing lost, file and tables exact, HTTP repeats within the bound.
	cd engine && PENSTOCK_KILLS=$${KILLS:-200} go test -count=1 -timeout 60m -v -run TestKill ./internal/endtoend

.PHONY: waiting
waiting: ## kill -9 of the real program with 10,000 batches that wait for a retry: none lost, none early, attempts go on counting.
	cd engine && PENSTOCK_WAITING=full go test -count=1 -timeout 30m -v -run TestKillWaiting ./internal/endtoend

.PHONY: waiting-short
waiting-short: ## The same with 300 (go test has 100).
	cd engine && PENSTOCK_WAITING=short go test -count=1 -timeout 10m -v -run TestKillWaiting ./internal/endtoend

.PHONY: crash-short
crash-short: ## The same, 20 times, and waiting-short.
	cd engine && PENSTOCK_KILLS=20 PENSTOCK_WAITING=short go test -count=1 -timeout 10m -parallel 2 -v -run TestKill ./internal/endtoend

.PHONY: kills-short
kills-short: ## crash-short, rotation-kill-short and soak-short beside each other: none of them measures time.
	@$(MAKE) -s -j3 --output-sync=target crash-short rotation-kill-short soak-short

.PHONY: push-kills
push-kills: ## kill -9 of client, engine and both, KILLS=100 times each with both kinds of ack, and of two engines with one ledger: everything acknowledged arrives, repeats once (crash-short has few).
	cd engine && PENSTOCK_KILLS=$$((6 * $${KILLS:-100})) go test -count=1 -timeout 30m -v -run TestKillPush ./internal/endtoend
	cd engine && PENSTOCK_KILLS=$${KILLS:-100} go test -count=1 -timeout 30m -v -run TestKillShared ./internal/endtoend

.PHONY: push-bench
push-bench: ## Push sources beside bare servers, and the buffer beside a plain log: medians of 7 interleaved pairs; memory of 10,000 connections; datagrams.
	cd engine && go test -v -run '^$$' -bench 'BenchmarkPush' -benchtime 1x -timeout 10m ./internal/endtoend
	cd engine && go test -v -run '^$$' -bench 'BenchmarkStored' -benchtime 1x -timeout 10m ./kit/buffer
	cd engine && PENSTOCK_PUSH=full go test -count=1 -v -run 'TestPushMemory|TestPushDatagrams' -timeout 10m ./internal/endtoend

.PHONY: clients
clients: build ## Real clients send to the push sources, and all arrives with its types: curl, logger, rsyslog, syslog-ng, an OTLP exporter, clients of Elasticsearch and Loki. Missing ones are skipped by name.
	bench/clients/with-syslog-ng sh -c 'cd bench/clients && GOWORK=off PENSTOCK=$(CURDIR)/$(BIN) go test -count=1 -v .'

.PHONY: buffer-cluster
buffer-cluster: ## The durable buffer in a stream of three NATS servers, whose leader ends while data arrives; the losses of JetStream by name; keys over 150 seeds.
	cd engine && PENSTOCK_PUSH=full go test -count=1 -timeout 5m -v -run 'TestRemote|TestLoss|TestKeys' ./kit/buffer

.PHONY: crash-tables
crash-tables: ## The same from table to table, KILLS=n for each of SQLite, PostgreSQL and MariaDB, while writers commit late and servers restart.
	cd engine && PENSTOCK_KILLS=$$((2 * $${KILLS:-100})) go test -count=1 -timeout 60m -v -run TestKillTables ./internal/endtoend

.PHONY: workers
workers: ## Twelve unequal HTTP workers for 30 s: goodput, a hanging and a dying one, tails at 60 % load, before and after; failover.
	cd engine && PENSTOCK_WORKERS=full go test -count=1 -timeout 20m -v -run 'TestUnequal|TestFailover' ./internal/endtoend

.PHONY: workers-short
workers-short: ## The same, shortened.
	cd engine && PENSTOCK_WORKERS=short go test -count=1 -timeout 10m -v -run 'TestUnequal|TestFailover' ./internal/endtoend

.PHONY: bad-data
bad-data: ## Every family of bad data in the simulator, 20 seeds each (PENSTOCK_FAMILY="hang order=free" picks some): hours.
	cd engine && PENSTOCK_FAMILIES=full go test -count=1 -timeout 12h -v -run 'TestFamilies$$' ./internal/lab/flowsim

.PHONY: bad-data-table
bad-data-table: ## The families of the table in ADR 17, 20 seeds each: no order, no chance, no other trouble; three minutes. Exits 1 while bounds are missed.
	cd engine && PENSTOCK_FAMILIES=full PENSTOCK_SEEDS=$${SEEDS:-20} PENSTOCK_FAMILY="order=free chance=0, trouble=, hedge=false" go test -count=1 -timeout 60m -v -run 'TestFamilies$$' ./internal/lab/flowsim

.PHONY: unequal
unequal: ## Generated scenarios with many unequal workers, 20 seeds a family: credit saturated, several senders, open loop at 80 %, receivers that drop attempts; some minutes.
	cd engine && PENSTOCK_FAMILIES=unequal go test -count=1 -timeout 60m -v -run 'TestUnequalFamilies|TestDropsAboveALevel' ./internal/lab/flowsim

.PHONY: ack-cost
ack-cost: ## Time and allocations of an ack in the sender, for every window with 12 and 1,000 workers, in one benchmark run: exit 1 above 1 us, 6 us and 0.
	PENSTOCK_ACK_COST=1 go test -count=1 -v -run TestAckCost ./flow/control

.PHONY: bad-data-http
bad-data-http: ## A sample of them against real HTTP servers, 12 s.
	cd engine && PENSTOCK_FAMILIES=http go test -count=1 -v -run TestFamiliesOverHTTP ./internal/lab/flowsim

.PHONY: agree
agree: ## The real engine before twelve real servers against the simulator, as s01, s06 and s07, times divided by 4: two minutes.
	cd engine && PENSTOCK_AGREE=full go test -count=1 -timeout 20m -v -run TestAgree ./internal/endtoend

.PHONY: agree-short
agree-short: ## The same, times divided by 8.
	cd engine && PENSTOCK_AGREE=short go test -count=1 -timeout 10m -v -run TestAgree ./internal/endtoend

FILES := TestFileCalls|TestManyFiles|TestRenamedFiles|TestSourcesEven|TestChurnedFiles|TestIdleFiles
.PHONY: files
files: ## The figures of docs/files.md, each with its bound: 100,000 files, 10,000 renamed, tail beside spool_dir; some minutes.
	cd engine && PENSTOCK_FILES=full go test -count=1 -timeout 20m -v -run '$(FILES)' ./internal/endtoend

.PHONY: files-short
files-short: ## The same with fewer files, and wider bounds.
	cd engine && PENSTOCK_FILES=short go test -count=1 -timeout 10m -v -run '$(FILES)' ./internal/endtoend

.PHONY: faults
faults: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
faults: ## Injected faults against the real program, counted at the receiver: docs/faults.md has the families; some minutes.
	cd engine && PENSTOCK_FAULTS=full go test -count=1 -timeout 30m -parallel 12 -v -run 'TestFaults|TestTally' ./internal/faults | grep -vE '^(===|PASS|ok| *--- PASS)'

.PHONY: faults-short
faults-short: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
faults-short: ## One case in four of them, without the slow ones: about a minute.
	cd engine && PENSTOCK_FAULTS=short go test -count=1 -timeout 10m -parallel 12 -v -run 'TestFaults|TestTally' ./internal/faults | grep -vE '^(===|PASS|ok| *--- PASS)'

.PHONY: kafka-short
kafka-short: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
kafka-short: ## A real Kafka broker: the scenarios of the connector, and three programs that are killed at random (PENSTOCK_KILLS=n).
	cd engine && PENSTOCK_KAFKA=short go test -count=1 -timeout 10m -v -run 'TestReal' ./connector/kafka
	cd engine && PENSTOCK_KAFKA=short go test -count=1 -timeout 10m -v -run 'TestKillKafka(Group|Transactions)' ./internal/endtoend

.PHONY: cluster-crash
cluster-crash: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
cluster-crash: ## Three programs at a real Kafka broker, killed or suspended 200 times (PENSTOCK_KILLS=n), then three that share a pipeline over NATS (PENSTOCK_CLUSTER=n kills, and half as many suspensions in a COPY).
	cd engine && PENSTOCK_KAFKA=full go test -count=1 -timeout 20m -v -run TestReal ./connector/kafka
	cd engine && PENSTOCK_KAFKA=full PENSTOCK_KILLS=$${PENSTOCK_KILLS:-200} go test -count=1 -timeout 5h -v -run 'TestKillKafka(Group|Transactions)' ./internal/endtoend
	cd engine && PENSTOCK_CLUSTER=$${PENSTOCK_CLUSTER:-20} go test -count=1 -timeout 1h -v -run 'TestCluster(Kill|Suspend)$$' ./internal/endtoend

.PHONY: cluster-short
cluster-short: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
cluster-short: ## Three programs that share a pipeline over three NATS servers: three kills of the owner, one suspended for 15 s in a COPY, and a kill under `cluster dev`.
	cd engine && PENSTOCK_CLUSTER=3 go test -count=1 -timeout 10m -v -run 'TestCluster(Kill|Suspend|Dev)$$' ./internal/endtoend

.PHONY: takeover
takeover: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
takeover: ## The time from a kill of one of three engines until its unsettled records are delivered (PENSTOCK_TAKEOVER=20 kills): a Kafka group, a consumer of NATS, a lease, and a lease whose NATS leader is killed too.
	cd engine && PENSTOCK_TAKEOVER=$${PENSTOCK_TAKEOVER:-20} go test -count=1 -timeout 1h -v -run 'TestTakeover' ./internal/endtoend

.PHONY: chaos
chaos: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
chaos: ## Engines at a real Kafka broker and at three NATS servers under PENSTOCK_CHAOS=10 faults of each kind: kills, suspensions, cut and stalled networks, topics created again, offset resets, purges.
	cd engine && PENSTOCK_CHAOS=$${PENSTOCK_CHAOS:-10} go test -count=1 -timeout 10h -v -run 'TestChaos(Kafka|NATS)$$' ./internal/endtoend

.PHONY: chaos-short
chaos-short: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
chaos-short: ## One fault of each kind for a copy in transactions.
	cd engine && PENSTOCK_CHAOS=1 go test -count=1 -timeout 10m -v -run 'TestChaosKafka/transactions$$' ./internal/endtoend

.PHONY: notify-load
notify-load: ## 10,000 merchants, 1 % dead and 5 % slow, 1,000,000 notifications (PENSTOCK_NOTIFY_RECORDS=n, PENSTOCK_NOTIFY_RATE=n a second): p99 of the others, attempts at dead hosts, memory.
	cd engine && PENSTOCK_NOTIFY_LOAD=full go test -count=1 -timeout 60m -v -run 'TestLoad$$' ./connector/notify

.PHONY: notify-load-short
notify-load-short: ## The same with 1,000 merchants and 6,000 notifications, three times.
	cd engine && PENSTOCK_NOTIFY_LOAD=short go test -count=1 -timeout 10m -v -run 'TestLoad$$' ./connector/notify

.PHONY: parked-bench
parked-bench: ## Inserts and takes of a store with ROWS=10000000 parked deliveries (8 GB) beside a bare SQLite loop.
	cd engine && PENSTOCK_PARKED_ROWS=$${ROWS:-10000000} go test -count=1 -timeout 3h -v -run 'TestRates$$' ./kit/parked

.PHONY: docs-reference
docs-reference: ## Generate docs/reference from the option structs, the commands' help and the metrics; a test compares them.
	cd engine && go run ./internal/reference ../docs/reference

.PHONY: docs-flow
docs-flow: build ## Every table and plot of docs/flow-control.md again, of SEEDS runs each (20): long; SEEDS=1 for a look.
	@mkdir -p docs/plots/flow
	$(BIN) sim flow --table --seeds $${SEEDS:-20} --into docs/flow-control.md docs/scenarios/*.yaml
	$(BIN) sim flow --ablate --seeds $${SEEDS:-20} --plot docs/plots/flow --into docs/flow-control.md
	-$(BIN) sim flow --seeds 1 --plot docs/plots/flow --algorithm queue --algorithm vector_arc docs/scenarios/s05-step-change.yaml
	-$(BIN) sim flow --seeds 1 --plot docs/plots/flow --algorithm queue docs/scenarios/s06-hang.yaml

.PHONY: rotation
rotation: ## Every schedule of kills of each rotation case of tail (go test tries a third of them).
	cd engine && PENSTOCK_ROTATION=full go test -count=1 -v -run TestRotation ./connector/tail

.PHONY: soak
soak: ## Writers, four ways to rotate, truncation, compression, deletion and kill -9 at random, for SECONDS=600; SEED=n replays a schedule.
	cd engine && PENSTOCK_SOAK=$(or $(SECONDS),600) PENSTOCK_SEED=$(SEED) go test -count=1 -timeout 60m -v -run TestSoak ./internal/endtoend

.PHONY: soak-short
soak-short: ## The same for a minute.
	@$(MAKE) -s soak SECONDS=60

.PHONY: rotation-kill
rotation-kill: ## The same cases with kill -9 of the real program before, in the middle of and after every step, into SQLite and over HTTP.
	cd engine && PENSTOCK_ROTATION_KILL=full go test -count=1 -timeout 30m -v -run TestRotationKilled ./connector/tail

.PHONY: rotation-kill-short
rotation-kill-short: ## A sample of it: each case killed at all of its steps, twice.
	cd engine && PENSTOCK_ROTATION_KILL=sample go test -count=1 -timeout 10m -v -run TestRotationKilled ./connector/tail

BENCH ?=
# Where the folder beside this one has what some workloads need, they are measured, too.
SHARED := $(realpath ../shared)
bench bench-full bench-figures bench-check profile: export PENSTOCK_DATA ?= $(wildcard $(SHARED)/data)
bench bench-full bench-figures bench-check profile: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
.PHONY: bench
bench: build ## Speed as ratios against the physical limits, in under 5 minutes: JSON=1 for lines of JSON, BENCH='-only w1,w4_*' for flags.
	@cd bench && GOWORK=off go build -o ../bin/bench . && ../bin/bench -penstock ../$(BIN) -within $${WITHIN:-270s} $(if $(JSON),-json) $(BENCH)

.PHONY: bench-full
bench-full: build ## Longer, with the rivals that are on the PATH (bench/rivals/fetch.sh) or given by BENCH='-rival NAME=PATH'.
	@cd bench && GOWORK=off go build -o ../bin/bench . && ../bin/bench -penstock ../$(BIN) -full $(if $(JSON),-json) $(BENCH)

.PHONY: profile
profile: build ## Where a workload's processor time goes, as a flame graph in bench/out/: W=w1, w2, w3, w4_json, w8, ...
	@cd bench && GOWORK=off go build -o ../bin/bench . && ../bin/bench profile -penstock ../$(BIN) -w $${W:-w1}

.PHONY: bench-growth
bench-growth: build ## How cost grows with workers, files, file size and record size: a table and docs/plots/growth.svg.
	@cd bench && GOWORK=off go build -o ../bin/bench . && ../bin/bench growth -penstock ../$(BIN) $(BENCH)

.PHONY: bench-figures
bench-figures: build ## The figures of docs/performance.md again, in 20 minutes at most (WITHIN=...), rivals on the PATH included; GROWTH=1 adds the curves.
	@cd bench && GOWORK=off go build -o ../bin/bench . && \
	  { ../bin/bench -penstock ../$(BIN) -figures -within $${WITHIN:-20m} -append results.jsonl $(BENCH) || echo "some of it went wrong, see above"; }
	@$(if $(GROWTH),$(MAKE) -s bench-growth)
	@$(MAKE) -s bench-page

.PHONY: bench-page
bench-page: ## docs/performance.md from bench/results.jsonl, to which BENCH='-append results.jsonl' adds.
	cd bench && GOWORK=off go run . page results.jsonl

.PHONY: bench-check
bench-check: build ## The ratios in bench/ratios.json: fails when the median of 7 pairs has fallen by more than 20 %; BENCH=-keep keeps new ones.
	@cd bench && GOWORK=off go build -o ../bin/bench . && ../bin/bench -penstock ../$(BIN) -gate $(BENCH)

.PHONY: bench-judge
bench-judge: ## The same verdict over LINES=FILE of what `make -s bench JSON=1` printed (MACHINE=... elsewhere), measuring nothing.
	@cd bench && GOWORK=off go run . judge $(if $(MACHINE),-machine '$(MACHINE)') $(realpath $(LINES))

.PHONY: bench-records
bench-records: ## Parsing, JSON, SQLite and PostgreSQL beside a line loop, a bare insert loop and psql \copy: 7 interleaved pairs each.
	cd engine && PENSTOCK_RECIPES=$${PENSTOCK_RECIPES:-$$(cd .. && cd ../shared/recipes 2>/dev/null && pwd)} \
	  go test -p 1 -v -run '^$$' -bench 'Records|AgainstInsertLoop|AgainstCopy' -benchtime 1x ./internal/endtoend ./connector/sqlite ./connector/postgres

.PHONY: bench-tables
bench-tables: ## Table to table beside psql's COPY through a pipe, and beside a bare loop over SQLite: 7 interleaved pairs each.
	cd engine && go test -v -run '^$$' -bench 'TablePostgres|TableSQLite' -benchtime 1x ./internal/endtoend

.PHONY: bench-kafka
bench-kafka: export PENSTOCK_RECIPES ?= $(wildcard $(SHARED)/recipes)
bench-kafka: ## A topic of a real broker dropped and copied, beside a bare loop of franz-go: 7 interleaved pairs each.
	cd engine && go test -v -run '^$$' -bench 'BenchmarkKafka' -benchtime 1x -timeout 30m ./internal/endtoend

.PHONY: bench-nats
bench-nats: ## Streams of NATS dropped, and lines from HTTP published, beside bare programs of nats.go: 7 interleaved pairs each.
	cd engine && go test -v -run '^$$' -bench 'BenchmarkNATS|BenchmarkHTTPToNATS' -benchtime 1x -timeout 30m ./internal/endtoend

.PHONY: bench-backoff
bench-backoff: ## backoff and retry against five other libraries in one run: ratios, then benchstat (ROUNDS=30).
	@mkdir -p bench/out
	cd bench/backoff && GOWORK=off go run . -rounds $${ROUNDS:-30} -out ../out/backoff.txt
	go run $(BENCHSTAT) -col /lib bench/out/backoff.txt

.PHONY: bench-libs
bench-libs: export PENSTOCK_SUMMARY := $(CURDIR)/bench/out/libs.txt
bench-libs: ## The libraries beside others in under 3 minutes: limiters at servers of 8 places in virtual time, then the cost of a call. Fails on a missed target.
	@mkdir -p bench/out && rm -f $$PENSTOCK_SUMMARY
	@failed=0; \
	(cd bench/backoff && GOWORK=off go run . -rounds $${ROUNDS:-60} -benchtime $${BENCHTIME:-2ms} -check) || failed=1; \
	(cd bench/libs && GOWORK=off go test -count=1 -v -benchtime $${BENCHTIME:-2ms} .) || failed=1; \
	echo; echo "Summary:"; cat $$PENSTOCK_SUMMARY; exit $$failed

.PHONY: bench-herd
bench-herd: ## 10,000 supervised children crash together: how they come back, beside suture.
	cd bench && GOWORK=off go run ./herd

.PHONY: fuzz
fuzz: ## Every fuzz target for 30 s (FUZZTIME=...).
	@for m in $(MODULES); do (cd $$m && go list -f '{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}' ./... | while read -r dir files; do \
	  for f in $$files; do grep -oE '^func Fuzz[A-Za-z0-9]+' "$$dir/$$f" | sed 's/func //' | while read -r name; do \
	    echo "$$dir $$name"; (cd "$$dir" && go test -run '^$$' -fuzz "^$$name$$" -fuzztime $${FUZZTIME:-30s} .); done; done; done); done

.PHONY: prose
prose: ## Signs of hard-to-read comments and docs, by package and page; UPDATE=1 keeps them as the limits that CI holds.
	cd engine && go test -count=1 -v -run TestRatchet ./internal/prose $(if $(UPDATE),-update) | sed -n 's/^ *prose_test.go:[0-9]*: //p'

.PHONY: code-lines
code-lines: ## Code lines of each package at BASE=a477cea and now; .ci/codelines/packages.txt lists moved folders and newer features.
	@go run ./.ci/codelines $${BASE:-a477cea}

.PHONY: delivery-path
delivery-path: ## The files, interfaces and handoffs that a delivered log line and table row run through (CHECKOUT=... of another commit).
	@.ci/delivery-path $(CHECKOUT)

.PHONY: changelog
changelog: ## The files of changes/ as a section of CHANGELOG.md.
	@changes/join

.PHONY: examples
examples: ## Build and run the examples that are modules of their own: a program with the engine inside, and binaries with more components.
	@.ci/examples

.PHONY: examples-tidy
examples-tidy: ## Bring their go.mod and go.sum up to date.
	for name in embed own-binary own-connector; do GOWORK=off go -C examples/$$name mod tidy; done

.PHONY: dashboard-short
dashboard-short: build ## The dashboard in a real Chromium: live values, the slow worker, dead letters replayed, screenshots in bench/web/out. Needs chromium, node and npm, else it is skipped.
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then echo "dashboard: skipped: there is no node and npm"; \
	elif [ ! -x "$${CHROMIUM:-/usr/bin/chromium}" ]; then echo "dashboard: skipped: there is no $${CHROMIUM:-/usr/bin/chromium} (Debian package chromium)"; \
	elif ! (cd bench/web && npm ci --silent); then echo "dashboard: skipped: npm could not install playwright-core"; \
	else cd bench/web && node dashboard.mjs; fi

.PHONY: dashboard-cost
dashboard-cost: ## The dashboard for 1,000 workers: processor time of a frame, at 1 Hz under 1 % of a core; a short form is part of the tests.
	cd engine && go test -count=1 -v -run TestDashboardCost -bench Dashboard1000 -benchtime 2s ./internal/pipeline

.PHONY: terminal-short
terminal-short: ## top, tap and try driven in tmux (Debian package tmux), else skipped.
	@if ! command -v tmux >/dev/null; then echo "terminal: skipped: there is no tmux (Debian package tmux)"; \
	else cd engine && PENSTOCK_TERMINAL=short go test -count=1 -v -run 'TestTerminal$$' ./internal/endtoend; fi

.PHONY: reloads
reloads: ## RELOADS=100 reloads at 100 a minute under load: ten routes into SQLite, nothing lost or repeated, no throughput lost (the tests reload ten times).
	cd engine && PENSTOCK_RELOADS=$${RELOADS:-100} go test -count=1 -timeout 10m -v -run TestReloadLoad ./internal/endtoend

.PHONY: way-back
way-back: ## The checkpoint converted for the program of the format before, which is built from its commit; and forward again.
	@.ci/way-back

.PHONY: deploy-check
deploy-check: ## Alert rules and Grafana dashboard: existing metrics only, and with promtool (Debian package prometheus) their unit tests.
	cd engine && go test -count=1 -v -run 'TestAlertRules|TestGrafanaDashboard|TestExprScanner|TestPromtool' ./internal/admin

.PHONY: dist
dist: ## Archives of 5 platforms and Debian packages in bin/dist/, with checksums, lists of modules, and a module proxy (VERSION=1.2.3).
	@.ci/dist
	@.ci/dist-modules

.PHONY: dist-short
dist-short: ## The Debian package of this machine, installed and run on a throw-away layer, else skipped (needs root and Debian); an empty module that uses both modules.
	@if ! command -v dpkg-deb >/dev/null; then echo "dist: skipped: there is no dpkg-deb (Debian package dpkg)"; \
	else DPKG_DEB_COMPRESSOR_LEVEL=1 .ci/dist linux/$$(go env GOARCH) && .ci/dist-try bin/dist/*.deb; fi
	@.ci/dist-modules

.PHONY: quickstart
quickstart: ## The README's main command twice: all delivered, then nothing new; the checkout stays clean.
	@.ci/quickstart

.PHONY: unchanged
unchanged: ## go doc, list, test, run and work sync change no file of the checkout.
	@.ci/unchanged
