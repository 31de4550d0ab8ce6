module github.com/penstock-io/penstock/bench/libs

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/penstock-io/penstock v0.0.0
	github.com/platinummonkey/go-concurrency-limits v0.10.0
	github.com/sony/gobreaker/v2 v2.4.0
	golang.org/x/time v0.16.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)

replace github.com/penstock-io/penstock => ../..
