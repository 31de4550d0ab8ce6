module github.com/penstock-io/penstock/bench

go 1.26

require (
	github.com/penstock-io/penstock v0.0.0
	github.com/thejerf/suture/v4 v4.0.6
)

replace github.com/penstock-io/penstock => ../
