// Package endtoend tests the real program, and whole pipelines inside the test process. It uses
// real files, servers, brokers and databases, and kills processes with kill -9.
//
// The package contains only tests. `make help` lists the targets for the long ones, such as `make
// crash`. Every `go test` runs a short form of many of them.
package endtoend
