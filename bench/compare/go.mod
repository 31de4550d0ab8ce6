module github.com/penstock-io/penstock/bench/compare

go 1.26.0

replace github.com/penstock-io/penstock => ../..

require (
	github.com/avast/retry-go/v5 v5.1.1
	github.com/cenkalti/backoff/v7 v7.0.3
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/penstock-io/penstock v0.0.0
	github.com/platinummonkey/go-concurrency-limits v0.10.0
	github.com/sethvargo/go-retry v0.5.0
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/thejerf/suture/v4 v4.0.6
	golang.org/x/sync v0.24.0
	golang.org/x/time v0.16.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)
