// Package all is the one visible list of what the binary contains: no component registers itself. A program that embeds
// penstock may take this list, a part of it, or add lines of its own, which look the same.
package all

import (
	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/connector/drop"
	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
)

// Components returns the built-in components in a new slice, in the order in which the reference lists them.
func Components() []penstock.Component {
	return []penstock.Component{
		spooldir.Source(),
		file.Component(),
		http.Component(),
		sqlite.Component(),
		postgres.Component(),
		drop.Component(),
	}
}
