// Package archtest checks rules of this project: allowed imports, functions without I/O,
// goroutines, and the size of files, lines, functions and types. It has only tests. They read the
// source of all modules of the repository as text. Some rules skip parts of it, such as bench and
// grpc. The rules are also in CONTRIBUTING.md. Change both together.
package archtest
