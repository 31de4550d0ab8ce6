module github.com/penstock-io/penstock/bench

go 1.26
