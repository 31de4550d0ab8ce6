// Command own-connector is penstock with a source and a sink for Redis lists. It has the commands of
// penstock, except the simulations sim and backoff.
package main

import (
	"example.com/penstock/own-connector/redislist"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
)

func main() {
	cli.Main(append(all.Components(), redislist.Source(), redislist.Sink())...)
}
