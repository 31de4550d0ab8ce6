// Package all is the one visible list of what the binary contains: no component registers itself. A
// program that embeds penstock may take this list, a part of it, or add lines of its own, which
// look the same.
package all

import (
	dropsink "github.com/penstock-io/penstock/engine/connector/drop"
	execsink "github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/connector/httpserver"
	"github.com/penstock-io/penstock/engine/connector/mysql"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/engine/connector/socket"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
	"github.com/penstock-io/penstock/engine/connector/stdin"
	"github.com/penstock-io/penstock/engine/connector/stdout"
	"github.com/penstock-io/penstock/engine/connector/syslog"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/engine/connector/tail"
	"github.com/penstock-io/penstock/engine/processor/drop"
	"github.com/penstock-io/penstock/engine/processor/exec"
	"github.com/penstock-io/penstock/engine/processor/parse"
	"github.com/penstock-io/penstock/engine/processor/rename"
	"github.com/penstock-io/penstock/engine/processor/set"
	"github.com/penstock-io/penstock/engine/processor/where"
	"github.com/penstock-io/penstock/stream"
)

// Components returns the built-in components in a new slice, in the order in which the reference
// lists them.
func Components() []stream.Component {
	return []stream.Component{
		spooldir.Source(),
		table.Source(),
		tail.Source(),
		stdin.Source(),
		httpserver.Source(),
		socket.Source(),
		syslog.Source(),
		parse.Component(),
		where.Component(),
		set.Component(),
		drop.Component(),
		rename.Component(),
		exec.Component(),
		file.Component(),
		http.Component(),
		sqlite.Component(),
		postgres.Component(),
		mysql.Component(),
		execsink.Component(),
		dropsink.Component(),
		stdout.Component(),
	}
}
