module github.com/penstock-io/penstock/engine

go 1.26

require github.com/penstock-io/penstock v0.0.0

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	golang.org/x/sys v0.13.0 // indirect
)

// Until the first release the two modules move together; docs/adr/0002-two-modules.md.
replace github.com/penstock-io/penstock => ../
