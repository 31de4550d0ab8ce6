// Package archtest checks rules of this project: which packages a package may import, which files
// may do I/O or start goroutines, and how large files, lines, functions and types may be. It has
// only tests. They read the source of all modules of the repository as text. Some rules omit some
// folders, such as bench and grpc. CONTRIBUTING.md states the same rules. Change both together.
package archtest
