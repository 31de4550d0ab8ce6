package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/stream"
)

// marker is in every secret of the tests.
const marker = "Hunter2Marker"

const aSink = `endpoints: ["http://127.0.0.1:1"], `

const aNotify = `url: message, allow: {hosts: [a.example]}, `

// secretCases lists the components with secret options.
var secretCases = map[string]struct {
	role stream.Role
	// options has an entry for each option that may hold a secret. Its key is the path of this
	// option, and its value has the component's options, with %s in place of the secret.
	options map[string]string
	valid   []string // options that are right, with the marker in each; nothing listens at port 1
}{
	"http": {stream.SinkRole, map[string]string{
		"endpoints":      `endpoints: [%s]`,
		"headers":        `endpoints: ["http://127.0.0.1:1"], headers: {X-Api-Key: %s}`,
		"bearer":         `endpoints: ["http://127.0.0.1:1"], bearer: %s`,
		"basic.password": `endpoints: ["http://127.0.0.1:1"], basic: {user: me, password: %s}`,
		"proxy":          `endpoints: ["http://127.0.0.1:1"], proxy: %s`,

		"elasticsearch.api_key": aSink + `body: elasticsearch_bulk, elasticsearch: {api_key: %s}`,

		"sign.standard_webhooks.secrets": aNotify + `sign: {standard_webhooks: {secrets: [%s]}}`,
		"sign.hmac.secret":               aNotify + `sign: {hmac: {header: X, secret: %s}}`,
		"discovery.nats.password":        aWorkers + `user: me, password: %s}}`,
		"discovery.nats.token":           aWorkers + `token: %s}}`,
		"discovery.nats.url":             aWorkersAt + `%s}}`,
	}, []string{
		`endpoints: ["http://me:MARK@127.0.0.1:1/in?token=MARK"]`,
		`endpoints: ["http://127.0.0.1:1/in?token=MARK&apikey=MARK", "http://127.0.0.1:1/in?MARK"]`,
		`endpoints: ["https://127.0.0.1:1/in?token=MARK"], bearer: MARK`,
		`endpoints: ["http://127.0.0.1:1"], proxy: "http://me:MARK@127.0.0.1:1/?token=MARK"`,
		`endpoints: ["https://127.0.0.1:1"], proxy: "http://me:MARK@127.0.0.1:1"`,
		`endpoints: ["http://127.0.0.1:1"], headers: {X-Api-Key: MARK}, basic: {user: me, password: MARK}`,
		aWorkers + `user: me, password: MARK}}`,
	}},
	"elasticsearch": {stream.SinkRole, map[string]string{
		"endpoints":               `endpoints: [%s]`,
		"headers":                 aSink + `headers: {X-Api-Key: %s}`,
		"bearer":                  aSink + `bearer: %s`,
		"basic.password":          aSink + `basic: {user: me, password: %s}`,
		"api_key":                 aSink + `api_key: %s`,
		"discovery.nats.password": aWorkers + `user: me, password: %s}}`,
		"discovery.nats.token":    aWorkers + `token: %s}}`,
		"discovery.nats.url":      aWorkersAt + `%s}}`,
	}, []string{
		`endpoints: ["http://me:MARK@127.0.0.1:1/?token=MARK"]`,
		aSink + `headers: {X: MARK}, api_key: "id:MARK"`,
		aWorkers + `user: me, password: MARK}}`,
	}},
	"loki": {stream.SinkRole, map[string]string{
		"endpoints":               `endpoints: [%s]`,
		"headers":                 aSink + `headers: {X-Api-Key: %s}`,
		"bearer":                  aSink + `bearer: %s`,
		"basic.password":          aSink + `basic: {user: me, password: %s}`,
		"discovery.nats.password": aWorkers + `user: me, password: %s}}`,
		"discovery.nats.token":    aWorkers + `token: %s}}`,
		"discovery.nats.url":      aWorkersAt + `%s}}`,
	}, []string{
		`endpoints: ["http://me:MARK@127.0.0.1:1/?token=MARK"]`,
		aSink + `headers: {X: MARK}, bearer: MARK`,
		aWorkers + `user: me, password: MARK}}`,
	}},
	"clickhouse": {stream.SinkRole, map[string]string{
		"endpoints":               `table: t, endpoints: [%s]`,
		"headers":                 `table: t, ` + aSink + `headers: {X-Api-Key: %s}`,
		"bearer":                  `table: t, ` + aSink + `bearer: %s`,
		"basic.password":          `table: t, ` + aSink + `basic: {user: me, password: %s}`,
		"discovery.nats.password": `table: t, ` + aWorkers + `user: me, password: %s}}`,
		"discovery.nats.token":    `table: t, ` + aWorkers + `token: %s}}`,
		"discovery.nats.url":      `table: t, ` + aWorkersAt + `%s}}`,
	}, []string{
		`table: t, endpoints: ["http://me:MARK@127.0.0.1:1/?token=MARK"]`,
		`table: t, ` + aSink + `headers: {X: MARK}, bearer: MARK`,
		`table: t, ` + aWorkers + `user: me, password: MARK}}`,
	}},
	"http_server": {stream.SourceRole, map[string]string{
		"token":                `listen: "127.0.0.1:0", token: %s`,
		"tokens":               `listen: "127.0.0.1:0", tokens: {client: %s}`,
		"buffer.nats.password": `listen: "127.0.0.1:0", ` + aBuffer + `user: me, password: %s}}`,
		"buffer.nats.token":    `listen: "127.0.0.1:0", ` + aBuffer + `token: %s}}`,
		"buffer.nats.url":      `listen: "127.0.0.1:0", ` + aBufferAt + `%s}}`,
		"register.password":    aRegister + `user: me, password: %s}`,
		"register.token":       aRegister + `token: %s}`,
		"register.url":         `listen: "127.0.0.1:0", register: {subject: w, url: %s}`,
	}, []string{
		`listen: "127.0.0.1:0", token: MARK`,
		`listen: "127.0.0.1:0", tokens: {client: MARK}`,
		`listen: "127.0.0.1:0", ` + aBuffer + `token: MARK}}`,
		aRegister + `user: me, password: MARK}`,
	}},
	"otlp": {stream.SourceRole, map[string]string{
		"token":                `listen: "127.0.0.1:0", token: %s`,
		"tokens":               `listen: "127.0.0.1:0", tokens: {client: %s}`,
		"buffer.nats.password": `listen: "127.0.0.1:0", ` + aBuffer + `user: me, password: %s}}`,
		"buffer.nats.token":    `listen: "127.0.0.1:0", ` + aBuffer + `token: %s}}`,
		"buffer.nats.url":      `listen: "127.0.0.1:0", ` + aBufferAt + `%s}}`,
	}, []string{
		`listen: "127.0.0.1:0", token: MARK`,
		`listen: "127.0.0.1:0", tokens: {client: MARK}`,
		`listen: "127.0.0.1:0", ` + aBuffer + `token: MARK}}`,
	}},
	"syslog": {stream.SourceRole, map[string]string{
		"buffer.nats.password": aSocket + aBuffer + `user: me, password: %s}}`,
		"buffer.nats.token":    aSocket + aBuffer + `token: %s}}`,
		"buffer.nats.url":      aSocket + aBufferAt + `%s}}`,
	}, []string{
		aSocket + aBuffer + `user: me, password: MARK}}`,
	}},
	"socket": {stream.SourceRole, map[string]string{
		"buffer.nats.password": aSocket + aBuffer + `user: me, password: %s}}`,
		"buffer.nats.token":    aSocket + aBuffer + `token: %s}}`,
		"buffer.nats.url":      aSocket + aBufferAt + `%s}}`,
	}, []string{
		aSocket + aBuffer + `token: MARK}}`,
	}},
	"kafka": {stream.SourceRole, map[string]string{
		"sasl.password": kafkaBase + `sasl: {mechanism: scram_sha_256, user: me, password: %s}`,
		"sasl.token":    kafkaBase + `sasl: {mechanism: oauthbearer, token: %s}`,
	}, []string{
		kafkaBase + `sasl: {mechanism: scram_sha_512, user: me, password: MARK}`,
		kafkaBase + `sasl: {mechanism: oauthbearer, token: MARK}`,
	}},
	"nats": {stream.SourceRole, map[string]string{
		"password": natsBase + `user: me, password: %s`,
		"token":    natsBase + `token: %s`,
		"url":      `stream: S, connect_timeout: 100ms, url: %s`,
	}, []string{
		natsBase + `user: me, password: MARK`, natsBase + `token: MARK`,
	}},
	"http_poll": {stream.SourceRole, map[string]string{
		"url":            `url: %s`,
		"headers":        `url: "http://127.0.0.1:1", headers: {X-Api-Key: %s}`,
		"bearer":         `url: "http://127.0.0.1:1", bearer: %s`,
		"basic.password": `url: "http://127.0.0.1:1", basic: {user: me, password: %s}`,
		"proxy":          `url: "http://127.0.0.1:1", proxy: %s`,
	}, []string{
		`url: "http://me:MARK@127.0.0.1:1/in?token=MARK", retry: {give_up: 0s}`,
		`url: "http://127.0.0.1:1/in?MARK", bearer: MARK, retry: {give_up: 0s}`,
		`url: "http://h.test", retry: {give_up: 0s}, proxy: "http://me:MARK@127.0.0.1:1/?MARK"`,
		`url: "https://127.0.0.1:1", headers: {X: MARK}, retry: {give_up: 0s}`,
	}},
	"postgres": {stream.SinkRole, map[string]string{"url": `table: t, url: %s`}, []string{
		`table: t, url: "postgres://me:MARK@127.0.0.1:1/db?connect_timeout=1&password=MARK"`,
		`table: t, url: "host=127.0.0.1 port=1 user=me password=MARK"`,
	}},
	"mysql": {stream.SinkRole, map[string]string{"url": `table: t, url: %s`}, []string{
		`table: t, url: "me:MARK@tcp(127.0.0.1:1)/db?timeout=1s"`,
	}},
	"table": {stream.SourceRole, map[string]string{
		"postgres": `table: t, postgres: %s`,
		"mysql":    `table: t, mysql: %s`,
	}, []string{
		`table: t, postgres: "postgres://me:MARK@127.0.0.1:1/db?connect_timeout=1"`,
		`table: t, mysql: "me:MARK@tcp(127.0.0.1:1)/db?timeout=1s"`,
	}},
}

const (
	aSocket    = `listen: "tcp://127.0.0.1:0", `
	aWorkersAt = `endpoints: [{nats: workers}], discovery: {nats: {url: `
	aWorkers   = aWorkersAt + `"nats://127.0.0.1:1", `
	aBufferAt  = `ack: buffered, buffer: {nats: {stream: s, url: `
	aBuffer    = aBufferAt + `"nats://127.0.0.1:1", `
	aRegister  = `listen: "127.0.0.1:0", register: {subject: w, url: "nats://127.0.0.1:1", `
)

const kafkaBase = `brokers: ["127.0.0.1:1"], group: g, topics: [t], connect_timeout: 100ms, `

const natsBase = `url: "nats://127.0.0.1:1", stream: S, connect_timeout: 100ms, `

// wrongForms lists values that secret options refuse or truncate. In each of them, %s stands for
// the marker, the text by which the test recognizes the secret.
var wrongForms = []string{
	`[%s]`, `[a, %s]`, `["a", "%s", b]`, `{%s: %s}`, `{a: %s}`, `{a: [b, %s]}`, `!%s x`,
	`!secret %s`, `!!binary %s`, `*%s`, `&a %s`,
	`"a\n%s"`, `'%s`, `"%s`, `x #%s`, `"http://me:%s@%%zz"`, `"http://me:a/%s@h"`,
	`"http://me:a %s@h"`, `http://me:a %s@h`,
	`"http://me:a?%s@h"`, `"me:%s@h:80"`, `me:%s@h:80`, `"ftp://me:%s@h"`, `"http://h/?token=%s#f"`,
	`"http:///?%s"`, `"http://h:%s"`,
	`"http://h/?apikey=%s", nosuch: 1`, `"${NOSUCH}%s"`, `"%s${"`, `"%s\x01"`,
	"|\n        %s\n    ", `"socks5://me:%s@"`,
}

// TestSecretsAreNotShown gives secrets of valid and invalid forms to every component that has
// secret options. It validates and runs the configs. No output and no file may contain a secret.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	t.Run("every component", everySecretHasACase)
	forms := wrongForms
	if testing.Short() {
		forms = forms[:1] // the other forms differ only for the parser
	}
	for name, c := range secretCases {
		for path, options := range c.options {
			for _, form := range forms {
				if !strings.Contains(form, "://") && (path == "endpoints" || path == "proxy") {
					continue // only a URL holds a secret there
				}
				value := strings.ReplaceAll(strings.ReplaceAll(form, "%s", marker), "%%", "%")
				checkSecrets(t, configOf(c.role, name, fmt.Sprintf(options, value)), "validate")
			}
		}
		for i, options := range c.valid {
			text := configOf(c.role, name, strings.ReplaceAll(options, "MARK", marker))
			checkSecrets(t, text, "validate")
			checkSecrets(t, text, "validate", "--json")
			run := []string{"run", "--once", "--stall", "100ms", "--log-level", "debug"}
			if i%2 == 1 {
				run = append(run, "--log-format", "json", "--json")
			}
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				t.Parallel()
				checkSecrets(t, text, run...)
			})
		}
	}
}

// everySecretHasACase finds the options that are tagged as secrets.
func everySecretHasACase(t *testing.T) {
	for _, c := range all.Components() {
		for _, path := range secretPaths(reflect.TypeOf(c.Options()), "") {
			if _, ok := secretCases[c.Name].options[path]; !ok {
				t.Errorf("%s %s: option %s is a secret and has no case", c.Role, c.Name, path)
			}
		}
	}
}

func secretPaths(t reflect.Type, prefix string) (paths []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case !f.IsExported() || key == "":
		case f.Tag.Get("secret") == "true":
			paths = append(paths, prefix+key)
		default:
			paths = append(paths, secretPaths(f.Type, prefix+key+".")...)
		}
	}
	return paths
}

// configOf returns a config with the component in it.
func configOf(role stream.Role, name, options string) string {
	source, sink := "spool_dir: {path: spool, quiet_period: 10ms}", "drop: {}"
	if role == stream.SourceRole {
		source = name + ": {" + options + "}"
	} else {
		sink = name + ": {" + options + "}"
	}
	return "admin: off\npipelines:\n  a:\n    source: {" + source + "}\n    sink: {" + sink + "}\n"
}

// checkSecrets runs a command with the config. It fails the test if the output, or a file that the
// command has written, contains the marker, which is in every secret of the config.
func checkSecrets(t *testing.T, text string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "penstock.yaml")
	if err := os.Mkdir(filepath.Join(dir, "spool"), 0o700); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "spool", "a.log")
	for name, content := range map[string]string{path: text, log: "a record\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := realProgram().try(t, append(args, path)...)
	if strings.Contains(got.out+got.stderr, marker) {
		t.Errorf("%v of\n%s\nprints the secret:\n%s%s", args, text, got.out, got.stderr)
	}
	if got.code == exitOK && args[0] == "run" {
		t.Errorf("%v of\n%s\nended without an error, so it shows nothing", args, text)
	}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || file == path {
			return err
		}
		content, err := os.ReadFile(file)
		if strings.Contains(string(content), marker) {
			t.Errorf("%v of\n%s\nwrites the secret into %s", args, text, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
