// Package flume converts the configuration of a Flume 1.11 agent to penstock. It covers the sources
// spooldir and TAILDIR, the channels memory and file, the sinks http, file_roll and null, and sink
// groups. It contains a parser of Java properties and the tables of equivalents. Properties that
// cannot be converted are reported, never guessed. An unsupported sink leaves its route without a
// sink, so that `penstock validate` refuses the config.
//
// Convert reads no files. The Progress of its result reads the progress that Flume has stored in
// position files and tracker directories. The command `penstock import flume` uses both.
//
// Options and their defaults are those of the Flume 1.11.0 User Guide and Flume's source code.
package flume

import "github.com/penstock-io/penstock/engine/internal/migrate"

// Convert converts the agent with the given name. If name is "", it converts the only agent.
func Convert(text, name string) (migrate.Result, error) {
	all, err := readProperties(text)
	if err != nil {
		return migrate.Result{}, err
	}
	a, err := choose(agents(all), name)
	if err != nil {
		return migrate.Result{}, err
	}
	c := &converter{agent: a}
	c.convert()
	migrate.Sort(c.notes)
	return migrate.Result{Name: "agent " + a.name, Config: c.yaml.String(), Notes: c.notes,
		Progress: c.stored, Runnable: c.broken == 0}, nil
}
