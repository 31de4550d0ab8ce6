// Package archtest is the house's rules as tests: which package may import which, what a pure file
// may not do, where a goroutine may start, how long a file, a line and a function may be.
//
// It holds nothing but tests, reads the source of both modules as text, and belongs to whoever
// changes a rule: change the table here and the words in CONTRIBUTING.md together.
package archtest
