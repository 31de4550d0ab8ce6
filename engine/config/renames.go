package config

import "go.yaml.in/yaml/v4"

// Rename is a former name of a key that still works. docs/renames.md has the same table.
type Rename struct{ Former, Present string }

var renames = []Rename{
	{"retry.policy", "retry.backoff"},
	{"flow.limit", "limit"},
	{"flow.worker_limit", "worker_limit"},
}

// Renames returns the former names of keys that a config may still use.
func Renames() []Rename { return append([]Rename(nil), renames...) }

// presentName returns the present name of a key.
func presentName(former string) string {
	for _, r := range renames {
		if r.Former == former {
			return r.Present
		}
	}
	panic("config: " + former + " is missing from the table of renames")
}

// formerName adds a notice that a key has a new name.
func formerName(l *loader, n *yaml.Node, former string) {
	remark(l, func() { l.fail(n, "%s is the former name of %s", former, presentName(former)) })
}

// bothNames adds an error about a key that is given under both names.
func bothNames(l *loader, n *yaml.Node, former string) {
	l.fail(n, "%s is the former name of %s, and both are given; remove one of them", former,
		presentName(former))
}
