package config

import "go.yaml.in/yaml/v4"

// renames has the present names of keys by the former names, which still work. docs/renames.md has
// the same table.
var renames = map[string]string{
	"retry.policy":      "retry.backoff",
	"flow.limit":        "limit",
	"flow.worker_limit": "worker_limit",
}

// formerName adds a notice that a key has a new name.
func formerName(l *loader, n *yaml.Node, former string) {
	remark(l, func() { l.fail(n, "%s is the former name of %s", former, renames[former]) })
}

// bothNames adds an error about a key that is given under both names.
func bothNames(l *loader, n *yaml.Node, former string) {
	l.fail(n, "%s is the former name of %s, and both are given; remove one of them", former,
		renames[former])
}
