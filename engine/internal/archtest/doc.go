// Package archtest checks rules of this project: allowed imports, functions without I/O,
// goroutines, and the size of files, lines, functions and types. It has only tests. They read the
// source of all modules of the repository as text. Some rules omit some folders, such as bench and
// grpc. CONTRIBUTING.md states the same rules. Change both together.
package archtest
