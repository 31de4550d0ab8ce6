module github.com/penstock-io/penstock/bench/backoff

go 1.26.0

require (
	github.com/avast/retry-go/v5 v5.1.1
	github.com/cenkalti/backoff/v7 v7.0.3
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/jpillora/backoff v1.1.0
	github.com/penstock-io/penstock v0.0.0
	github.com/sethvargo/go-retry v0.5.0
)

require github.com/bits-and-blooms/bitset v1.24.4 // indirect

replace github.com/penstock-io/penstock => ../..
