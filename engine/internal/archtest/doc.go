// Package archtest checks rules of this project: allowed imports, functions without I/O,
// goroutines, and the size of files, lines, functions and types. It has only tests, which read the
// source of both modules as text. The rules are also in CONTRIBUTING.md. Change both together.
package archtest
