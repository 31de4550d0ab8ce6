// Package archtest contains the project's rules as tests: allowed imports, purity, goroutines, and
// the size of files, lines, functions and types.
//
// It contains only tests, and reads the source of both modules as text. Change a rule here and in
// CONTRIBUTING.md together.
package archtest
