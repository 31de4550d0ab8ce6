// Package flume converts the configuration of a Flume 1.11 agent to penstock. It converts the
// sources spooldir, TAILDIR and exec (only with the command tail), the interceptor regex_filter,
// the sinks http, file_roll and null, and sink groups. The channels memory and file need no
// equivalent.
//
// Notes report properties that cannot be converted. One note covers all properties of an
// unsupported source, channel or sink. The pipeline of an unsupported source gets no source. If no
// sink of a channel is supported, its route gets no sink. `penstock validate` then reports an
// error.
//
// Convert reads no files. The functions in Result.Progress read the position files and tracker
// directories of Flume. The command `penstock import flume` uses both. Options and their defaults
// are those of the Flume 1.11.0 User Guide and of Flume's source code.
package flume

import "github.com/penstock-io/penstock/engine/internal/migrate"

// Convert converts the agent with the given name or, if name is "", the only agent.
func Convert(text, name string) (migrate.Result, error) {
	all, err := readProperties(text)
	if err != nil {
		return migrate.Result{}, err
	}
	a, err := choose(agents(all), name)
	if err != nil {
		return migrate.Result{}, err
	}
	c := &converter{agent: a, files: make(map[string]int), told: make(map[*part]bool),
		Builder: migrate.NewBuilder("the Flume agent "+a.name, "flume")}
	c.convert()
	return c.Result("agent "+a.name, nil), nil
}
