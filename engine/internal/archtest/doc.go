// Package archtest checks rules of this project, for example which packages a package may import,
// which files may do I/O or start goroutines, and how large files, functions and types may be. It
// has only tests. They parse the source of all modules of the repository. Some rules omit some
// folders, such as bench and grpc. CONTRIBUTING.md states the most important rules. If you change
// one of them, change its test and CONTRIBUTING.md together.
package archtest
