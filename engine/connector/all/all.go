// Package all lists the built-in components of the program penstock. A program that embeds penstock
// can use this list or a part of it, and can append its own components. Components do not register
// themselves.
package all

import (
	"slices"

	"github.com/penstock-io/penstock/engine/connector/clickhouse"
	dropsink "github.com/penstock-io/penstock/engine/connector/drop"
	"github.com/penstock-io/penstock/engine/connector/elasticsearch"
	execsink "github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/engine/connector/failover"
	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/connector/httppoll"
	"github.com/penstock-io/penstock/engine/connector/httpserver"
	"github.com/penstock-io/penstock/engine/connector/journald"
	"github.com/penstock-io/penstock/engine/connector/loki"
	"github.com/penstock-io/penstock/engine/connector/mysql"
	"github.com/penstock-io/penstock/engine/connector/notify"
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

// Components returns the built-in components in a new slice, in the order of the reference
// documentation.
func Components() []stream.Component {
	return slices.Concat([]stream.Component{
		spooldir.Source(),
		table.Source(),
		tail.Source(),
		stdin.Source(),
		execsink.SourceComponent(),
		httpserver.Source(),
		httppoll.Source(),
		socket.Source(),
		syslog.Source(),
		journald.Source(),
	}, otlpSource(), kafkaSource(), natsSource(), []stream.Component{
		parse.Component(),
		where.Component(),
		set.Component(),
		drop.Component(),
		rename.Component(),
		exec.Component(),
		file.Component(),
		http.Component(),
		elasticsearch.Component(),
		loki.Component(),
		clickhouse.Component(),
		notify.Component(),
		sqlite.Component(),
		postgres.Component(),
		mysql.Component(),
	}, kafkaSink(), natsSink(), []stream.Component{
		execsink.Component(),
		failover.Component(),
		dropsink.Component(),
		stdout.Component(),
	})
}
