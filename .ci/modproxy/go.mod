// Writes the modules of this repository as a file:// module proxy. It is a module of its own, so that
// the engine does not depend on golang.org/x/mod.
module github.com/penstock-io/penstock/ci/modproxy

go 1.26.0

require golang.org/x/mod v0.42.0
