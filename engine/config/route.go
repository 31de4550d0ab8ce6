package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// MainRoute is the name of the route of a pipeline without the key `routes`.
const MainRoute = "main"

var (
	routeKeys = []string{
		"processors", "sink", limitKey, workerLimitKey, "batch", "flow", "retry", "dead_letters",
		"guard",
		"checkpoint", "memory", "drain",
	}
	pipelineKeys = append([]string{"source", "routes"}, routeKeys...)
)

// DefaultRoute returns a route with the default of every option, and without a sink. state is the
// state directory. The dead letters of the route are in the directory "dead" in it.
func DefaultRoute(name, state string) Route {
	return Route{
		Name:  name,
		Batch: Batch{Bytes: 256 << 10, Records: 5000, Linger: 200 * time.Millisecond},
		Flow: Flow{
			Window: "auto", Initial: 1, Max: 1000, Threshold: "auto", Step: "per_round",
			Dispatch: "least_completion", Timeout: "auto", Abandon: 60 * time.Second,
			Redeliver: 0.1, RedeliverRate: 10, Poison: 3, Poisoned: "keep", TraceMax: 256 << 20,
		},
		Retry: Retry{Backoff: "exponential", Base: 250 * time.Millisecond, Max: 30 * time.Second,
			Jitter:    "full",
			Exhausted: "keep", Waiting: Waiting{Records: 2_000_000}},
		DeadLetters: DeadLetters{Dir: filepath.Join(state, "dead"), Max: 1 << 30},
		Guard:       Guard{Share: 0.1, Records: 1000},
		Checkpoint:  Checkpoint{Replay: 32 << 20, Sync: time.Second},
		Memory:      32 << 20,
		Drain:       30 * time.Second,
	}
}

// pipeline reads one pipeline. ok is false if it has mistakes that prevent further checks.
func (l *loader) pipeline(key, n *yaml.Node, state string) (p Pipeline, ok bool) {
	l.checkName(key, "pipeline")
	p = Pipeline{Name: key.Value, Where: l.place(key)}
	what := fmt.Sprintf("pipeline %q", key.Value)
	if n.Kind != yaml.MappingNode {
		l.fail(n, "%s wants a source and a sink, but this is %s", what, article(kindName(n)))
		return p, false
	}
	keys, meant := l.keys(n, what, pipelineKeys)
	l.source = Use{}
	s := keys["source"]
	if l.options.Source != "" {
		s = givenSource(l, s, key, what)
	}
	if s != nil {
		p.Source, _ = l.use(s, stream.SourceRole, what)
		l.source = p.Source
	} else if !meant["source"] && l.options.Source == "" {
		l.fail(key, "%s has no source to read from",
			what).Hint = l.example(stream.SourceRole)
	}
	routes, sink := keys["routes"], keys["sink"]
	switch {
	case routes != nil && sink != nil:
		l.fail(sink, "%s has both a sink and routes; move the sink into a separate route", what)
		return p, false
	case routes != nil:
		l.strayKeys(n, what, routes)
		p.Routes = l.routes(routes, what, state)
	default:
		p.Routes = []Route{l.route(MainRoute, key, keys, meant, what, state, nil)}
	}
	l.feedback(&p)
	return p, true
}

// givenSource returns the source of LoadOptions, with the position of the pipeline's key. written
// is the source in the file, or nil. If both exist, givenSource records an error and returns nil.
func givenSource(l *loader, written, key *yaml.Node, what string) *yaml.Node {
	if written != nil {
		const text = "%s has a source, but the command line gives another one; remove it from " +
			"the file"
		l.fail(written, text, what)
		return nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(l.options.Source), &doc); err != nil || len(doc.Content) == 0 {
		l.fail(key, "%s: the source of the command line is not YAML: %v", what, err)
		return nil
	}
	var move func(*yaml.Node)
	move = func(n *yaml.Node) {
		n.Line, n.Column = key.Line, key.Column
		for _, c := range n.Content {
			move(c)
		}
	}
	move(doc.Content[0])
	return doc.Content[0]
}

// strayKeys adds errors for keys of a route that stand beside `routes:`.
func (l *loader) strayKeys(n *yaml.Node, what string, routes *yaml.Node) {
	for key := range entries(n) {
		if !slices.Contains(routeKeys, key.Value) {
			continue
		}
		where := "a route"
		if routes.Kind == yaml.MappingNode && len(routes.Content) > 0 {
			where = fmt.Sprintf("routes.%s and any other route that needs it",
				routes.Content[0].Value)
		}
		l.fail(key, "%s has routes, and %s belongs to each of them; move it into %s", what,
			key.Value, where)
	}
}

func (l *loader) routes(n *yaml.Node, what, state string) []Route {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		l.fail(n, "%s: routes wants a mapping of names to routes, but this is %s", what,
			emptyOr(n, yaml.MappingNode))
		return nil
	}
	var out []Route
	type rest struct { // the route with `otherwise: true`
		key   *yaml.Node
		keys  map[string]*yaml.Node
		meant map[string]bool
		of    string
		at    int // index in out
	}
	var last *rest
	for key, value := range entries(n) {
		l.checkName(key, "route")
		of := fmt.Sprintf("%s, route %q", what, key.Value)
		if value.Kind != yaml.MappingNode {
			l.fail(value, "%s wants a sink, but this is %s", of, article(kindName(value)))
			continue
		}
		keys, meant := l.keys(value, of, append([]string{"source", otherwiseKey}, routeKeys...))
		if keys["source"] != nil {
			l.fail(keys["source"], "%s has a source; all routes share the source of the "+
				"pipeline: move it there, or add a second pipeline", of)
		}
		switch {
		case !isOtherwise(l, keys):
			out = append(out, l.route(key.Value, key, keys, meant, of, state, nil))
		case last != nil:
			l.fail(keys[otherwiseKey], "%s: a pipeline has at most one route with `otherwise: "+
				"true`, and %q already is one",
				of, last.key.Value)
		default:
			last = &rest{key, keys, meant, of, len(out)}
		}
	}
	if last != nil {
		r := l.route(last.key.Value, last.key, last.keys, last.meant, last.of, state, out)
		out = slices.Insert(out, last.at, r)
	}
	return out
}

func (l *loader) checkName(key *yaml.Node, what string) {
	if !namesForm.MatchString(key.Value) {
		l.fail(key, "%s name %q: use 1 to 64 of a-z, 0-9, - and _, because files and metrics "+
			"get this name", what, key.Value)
	}
}

// route reads one route from the values of its keys. If the route has `otherwise: true`, it gets
// the records that match no condition of the pipeline's other routes.
func (l *loader) route(
	name string, key *yaml.Node, keys map[string]*yaml.Node, meant map[string]bool,
	what, state string, others []Route,
) Route {
	r := DefaultRoute(name, state)
	r.Where = l.place(key)
	if s := keys["sink"]; s != nil {
		r.Sink, _ = l.use(s, stream.SinkRole, what)
	} else if !meant["sink"] && !meant["routes"] {
		l.fail(key, "%s has no sink to write to",
			what).Hint = l.example(stream.SinkRole)
	}
	if p := keys["processors"]; p != nil {
		r.Processors = l.processors(p, what)
	}
	right := true
	if at := keys[otherwiseKey]; at != nil && at.Value == "true" {
		r.Processors, right = addOtherwise(l, at, r.Processors, others, what)
	}
	if right {
		l.shape(&r)
	}
	preferred, ok := r.Sink.Options.(stream.Preferred)
	if ok {
		r.prefer(preferred.PreferredBatch())
	}
	before := len(l.errs)
	for _, part := range r.parts() {
		v := keys[part.key]
		if v != nil && part.key == "retry" {
			v = retryNode(l, v)
		}
		if v != nil {
			l.decode(v, part.value, option{name: part.key})
		}
	}
	r.Flow.readLimits(l, keys)
	if ok && len(l.errs) == before && valueOf(keys["batch"], "bytes") == nil {
		r.yield()
	}
	if len(l.errs) == before {
		checkRead(l, &r, key, keys)
	}
	return r
}

// checkRead checks a route that was read from keys. at is its position.
func checkRead(l *loader, r *Route, at *yaml.Node, keys map[string]*yaml.Node) {
	given := func(part, key string) *yaml.Node {
		if key == "" {
			return keys[part]
		}
		return valueOf(keys[part], key)
	}
	check{
		route: r,
		given: func(part, key string) bool { return given(part, key) != nil },
		// The error is reported at the position of the value. If the file does not contain the
		// value, it is reported at the nearest enclosing key.
		wrong: func(part, key, format string, args ...any) {
			l.fail(cmp.Or(given(part, key), keys[part], at), format, args...)
		},
	}.all()
}

// preferredInMemory is a number of batches. If the sink of a route prefers a batch size, the
// route's default memory is at least that size times preferredInMemory.
const preferredInMemory = 16

// prefer replaces the default batch limits by those that a sink prefers.
func (r *Route) prefer(b stream.BatchLimits) {
	if b.Bytes > 0 {
		r.Batch.Bytes = stream.Size(b.Bytes)
		r.Memory = max(r.Memory, preferredInMemory*r.Batch.Bytes)
	}
	if b.Records > 0 {
		r.Batch.Records = b.Records
	}
}

// yield reduces the batch size (Batch.Bytes) that a sink prefers, so that several batches fit into
// checkpoint.replay and into memory. The size becomes at most an eighth of the smaller of the two.
// Example: a sink prefers 2 MiB. With a checkpoint.replay of 4 MiB, the batch size is 512 KiB. The
// size is not reduced below the default of 256 KiB, unless checkpoint.replay or memory is smaller
// than that.
func (r *Route) yield() {
	bound := min(r.Checkpoint.Replay, r.Memory)
	r.Batch.Bytes = max(1,
		min(r.Batch.Bytes, max(bound/8, min(bound, stream.Size(stream.DefaultBatchLimits.Bytes)))))
}

func (l *loader) processors(n *yaml.Node, what string) []Use {
	if n.Kind != yaml.SequenceNode {
		l.fail(n, "%s: processors wants a list, in the order of execution, but this is %s",
			what, article(kindName(n))).
			Hint = "write each on a line that starts with `- `"
		return nil
	}
	return readUses(l, n, what)
}

// shape passes the schema of the records from the source through the processors to the sink. It
// stops at a component with invalid options, because the schema after that component is unknown.
func (l *loader) shape(r *Route) {
	all := append(slices.Clone(r.Processors), r.Sink.ends()...)
	if _, ok := l.source.Options.(stream.Shaper); ok {
		all = slices.Insert(all, 0, l.source)
	}
	invalid := slices.IndexFunc(all, func(u Use) bool {
		return l.set.right[u.Options] == nil && u.Options != nil || u.Component.Name == ""
	})
	if invalid >= 0 {
		all = all[:invalid]
	}
	if u, err := passShape(all); err != nil {
		l.set.right[u.Options](err)
	}
}
