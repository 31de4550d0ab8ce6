// A module outside the workspace, so that the libraries require nothing. Its two packages depend on grpc-go and connect.
module github.com/penstock-io/penstock/grpc

go 1.26.0

replace github.com/penstock-io/penstock => ..

require (
	github.com/penstock-io/penstock v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261026165753-2ffab32bce7e
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	connectrpc.com/connect v1.21.1
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
