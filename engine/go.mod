module github.com/penstock-io/penstock/engine

go 1.26

require github.com/penstock-io/penstock v0.0.0

require github.com/klauspost/compress v1.20.3 // indirect

// Until the first release the two modules move together; docs/adr/0002-two-modules.md.
replace github.com/penstock-io/penstock => ../
