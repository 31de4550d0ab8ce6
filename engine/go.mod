module github.com/penstock-io/penstock/engine

go 1.26.0

require github.com/penstock-io/penstock v0.0.0

require go.yaml.in/yaml/v4 v4.0.0

require (
	github.com/fsnotify/fsnotify v1.10.1
	github.com/klauspost/compress v1.20.3
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.10
)

require (
	github.com/VividCortex/ewma v1.2.0 // indirect
	github.com/acarl005/stripansi v0.0.0-20180116102854-5a71ef0e047d // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/vbauerster/mpb/v8 v8.9.3 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

// Until the first release the two modules move together; docs/adr/0002-two-modules.md.
replace github.com/penstock-io/penstock => ../
