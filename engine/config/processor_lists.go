package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

const (
	// processorsKey is the key of the shared lists at the top level, and of a route's own list of
	// processors.
	processorsKey = "processors"

	// useKey refers to a shared list within a list of processors.
	useKey = "use"

	// otherwiseKey marks the route for records that match no condition of another route.
	otherwiseKey = "otherwise"
)

// sharedList is a list of processors that routes in all files may use.
type sharedList struct {
	l    *loader // of its file
	n    *yaml.Node
	used bool
}

// readLists records the shared lists under the top-level key `processors`.
func readLists(l *loader, n *yaml.Node) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		const want = "processors wants a mapping of names to lists of processors, but this is %s"
		l.fail(n, want, emptyOr(n, yaml.MappingNode)).Hint =
			"write processors: {NAME: [{where: EXPR}]} here, and processors: [use: NAME] in a route"
		return
	}
	for key, list := range entries(n) {
		l.checkName(key, "processors")
		switch {
		case !claimFirst(l, processorsKey, key):
		case list.Kind != yaml.SequenceNode || len(list.Content) == 0:
			l.fail(list, "processors %q wants a list, in the order of execution, but this is %s",
				key.Value, emptyOr(list, yaml.SequenceNode)).Hint = "write each on a line that starts with `- `"
		default:
			l.set.lists[key.Value] = &sharedList{l: l, n: list}
			for _, c := range list.Content {
				if valueOf(c, useKey) != nil {
					l.fail(c, "processors %q: a shared list cannot use another; write its "+
						"processors here",
						key.Value)
				}
			}
		}
	}
}

// checkUnused checks the components of those shared lists that no route uses.
func checkUnused(l *loader) {
	for name, list := range l.set.lists {
		if list.l == l && !list.used && len(l.errs) == 0 {
			readUses(l, list.n, fmt.Sprintf("processors %q", name))
		}
	}
}

// readUses reads the processors of a list.
func readUses(l *loader, n *yaml.Node, what string) (out []Use) {
	for _, c := range n.Content {
		if name := valueOf(c, useKey); name != nil && len(c.Content) == 2 {
			out = append(out, useList(l, name, what)...)
			continue
		}
		u, _ := l.use(c, stream.ProcessorRole, what)
		out = append(out, u)
	}
	return out
}

// useList reads the processors of the shared list that n names. Mistakes in the list are reported
// at their positions in the file of the list.
func useList(l *loader, n *yaml.Node, what string) []Use {
	list := l.set.lists[n.Value]
	if n.Kind != yaml.ScalarNode || list == nil {
		var names []string
		for name := range l.set.lists {
			names = append(names, name)
		}
		slices.Sort(names)
		e := l.fail(n, "%s: there is no shared list of processors %q", what, n.Value)
		if e.Hint = didYouMean(n.Value, names); e.Hint == "" {
			e.Hint = "write it at the top level: processors: {NAME: [{where: EXPR}]}"
		}
		return nil
	}
	list.used = true
	usesAnother := func(c *yaml.Node) bool { return valueOf(c, useKey) != nil }
	if slices.ContainsFunc(list.n.Content, usesAnother) {
		return nil // an error was recorded before
	}
	return readUses(list.l, list.n, what)
}

// selector is implemented by the options of a processor that keeps only the records that match a
// condition, such as `where`.
type selector interface {
	// Otherwise returns options of the same type for the route with `otherwise: true`. Each element
	// of lists has the conditions of one other route. With the returned options, the processor
	// keeps the records that no other route keeps: those for which at least one condition in each
	// element is false.
	Otherwise(lists [][]any) any
}

// addOtherwise returns the processors of the route with `otherwise: true`. These are the route's
// own processors, and one more that negates the conditions of the other routes. The additional
// processor has the index at which the other routes have their first condition. ok is false after
// an error.
func addOtherwise(
	l *loader, at *yaml.Node, own []Use, others []Route, what string,
) (all []Use, ok bool) {
	var lists [][]any
	var condition Use
	prelude := -1
	for i := range others {
		r := &others[i]
		begin, end := conditions(r.Processors)
		if begin == end {
			continue // the route keeps all records, so it is ignored here
		}
		same := begin <= len(own) && slices.EqualFunc(r.Processors[:begin], own[:begin], Use.Equal)
		if !same || prelude >= 0 && prelude != begin {
			l.fail(at, "%s: `otherwise` needs the same processors as route %q before its condition",
				what, r.Name).
				Hint = "move them to a shared list at the top level, and begin each route with " +
				"`use: NAME`"
			return own, false
		}
		prelude, condition = begin, r.Processors[begin]
		var list []any
		for _, u := range r.Processors[begin:end] {
			list = append(list, u.Options)
		}
		lists = append(lists, list)
	}
	if prelude < 0 {
		const none = "%s: `otherwise` takes the records that no other route's condition takes, " +
			"but no other route has one"
		l.fail(at, none, what).Hint = "add `where: EXPR` to the processors of another route"
		return own, false
	}
	condition.Options = condition.Options.(selector).Otherwise(lists)
	condition.Where = l.place(at)
	l.set.right[condition.Options] = func(err error) { l.fail(at, "%s: otherwise: %v", what, err) }
	return slices.Insert(slices.Clone(own), prelude, condition), true
}

// conditions returns the index range of the first condition in uses and of the conditions directly
// after it. begin equals end if there is no condition.
func conditions(uses []Use) (begin, end int) {
	isCondition := func(u Use) bool {
		_, ok := u.Options.(selector)
		return ok
	}
	begin = slices.IndexFunc(uses, isCondition)
	if begin < 0 {
		return 0, 0
	}
	name := uses[begin].Component.Name
	end = begin
	for end < len(uses) && isCondition(uses[end]) && uses[end].Component.Name == name {
		end++
	}
	return begin, end
}

// isOtherwise reports whether a route with the values of keys has `otherwise: true`.
func isOtherwise(l *loader, keys map[string]*yaml.Node) bool {
	n := keys[otherwiseKey]
	if n == nil {
		return false
	}
	if n.Kind != yaml.ScalarNode || !slices.Contains([]string{"true", "false"}, n.Value) {
		l.fail(n, "otherwise is true or false, but this is %s", strings.TrimSpace(quoted(n.Value)))
		return false
	}
	return n.Value == "true"
}
