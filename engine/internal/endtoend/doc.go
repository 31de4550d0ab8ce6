// Package endtoend runs the real program, and whole pipelines in this process, against real files,
// servers, brokers and databases, and through kill -9.
//
// It contains only tests. `make help` lists the targets for the long ones, such as `make crash`. A
// short form of many runs with every `go test`.
package endtoend
