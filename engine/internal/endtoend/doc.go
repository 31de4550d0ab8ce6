// Package endtoend runs the real program, and whole pipelines in this process, against real files,
// real HTTP servers and kill -9.
//
// It contains only tests. The long ones run with `make crash` and `make workers`; a short form runs
// with every `go test`.
package endtoend
