// Package clients tests the push sources of penstock, such as syslog, with real clients. All
// records must arrive, with the right types of values. The environment variable PENSTOCK is the
// path of the program penstock. PENSTOCK_SYSLOG_NG is the folder into which the Debian package
// syslog-ng-core was extracted. That package cannot be installed beside rsyslog.
package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elastic/go-elasticsearch/v8"
	"github.com/elastic/go-elasticsearch/v8/esutil"
	"github.com/grafana/loki-client-go/loki"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// count is the number of records of each client.
const count = 300

// patience bounds each wait.
const patience = time.Minute

// penstock is a running program with one push source and a file.
type penstock struct {
	t       *testing.T
	address string
	out     string
}

// start starts penstock. ADDRESS in source stands for a free address.
func start(t *testing.T, source string) *penstock {
	t.Helper()
	program := os.Getenv("PENSTOCK")
	if program == "" {
		t.Skip("PENSTOCK does not name the program; run by make clients")
	}
	dir := t.TempDir()
	p := &penstock{t, freeAddress(t), filepath.Join(dir, "out.log")}
	config := fmt.Sprintf("state: %s\nadmin: %q\npipelines:\n  clients:\n    source: %s\n"+
		"    sink: { file: { path: %s, format: ndjson } }\n", filepath.Join(dir, "state"),
		freeAddress(t), strings.ReplaceAll(source, "ADDRESS", p.address), p.out)
	path := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.launch(program, "run", path)
	if !strings.Contains(source, "udp") {
		p.await("listener", func() bool {
			conn, err := net.Dial("tcp", p.address)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
	}
	return p
}

// freeAddress returns a loopback address with a free port.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// launch starts a program that ends with the test.
func (p *penstock) launch(name string, args ...string) {
	p.t.Helper()
	cmd := exec.Command(name, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if root := os.Getenv("PENSTOCK_SYSLOG_NG"); root != "" {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "usr/lib/syslog-ng"))
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if p.t.Failed() {
			p.t.Logf("%s: %s", name, output.Bytes())
		}
	})
}

// await waits until ok returns true.
func (p *penstock) await(event string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: not within %v", event, patience)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// arrived waits for all records. It returns them by the number at the end of their text.
func (p *penstock) arrived(text func(map[string]any) string) map[string]map[string]any {
	p.t.Helper()
	records := make(map[string]map[string]any)
	p.await("arrival of all records", func() bool {
		clear(records)
		data, _ := os.ReadFile(p.out) // it exists once there is a record
		for line := range bytes.Lines(data) {
			var record map[string]any
			if json.Unmarshal(line, &record) != nil {
				return false // a part of the line is not written yet
			}
			fields := strings.Fields(text(record))
			if len(fields) > 0 {
				records[fields[len(fields)-1]] = record
			}
		}
		return len(records) >= count
	})
	for i := range count {
		if records[fmt.Sprint(i)] == nil {
			p.t.Errorf("record %d has not arrived", i)
		}
	}
	return records
}

// want checks that the record with the number 7 has the given value at key, a path with slashes.
// The type of the value must be equal, too. Numbers are float64.
func want(t *testing.T, records map[string]map[string]any, key string, value any) {
	t.Helper()
	got := any(records["7"])
	for part := range strings.SplitSeq(key, "/") {
		members, _ := got.(map[string]any)
		got = members[part]
	}
	if got != value {
		t.Errorf("%s is %T(%v), want %T(%v): %v", key, got, got, value, value, records["7"])
	}
}

// field returns a function that returns the text of a field.
func field(name string) func(map[string]any) string {
	return func(record map[string]any) string { return fmt.Sprint(record[name]) }
}

// needs returns the path of a program, or skips the test.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	return path
}

func TestCurl(t *testing.T) {
	curl := needs(t, "curl")
	p := start(t, `{ http_server: { listen: "ADDRESS", format: ndjson } }`)
	var body strings.Builder
	for i := range count {
		fmt.Fprintf(&body, `{"message":"from curl %d","size":%d,"ok":true}`+"\n", i, i)
	}
	cmd := exec.Command(curl, "--silent", "--show-error", "--fail", "--data-binary", "@-",
		"http://"+p.address+"/")
	cmd.Stdin = strings.NewReader(body.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	records := p.arrived(field("message"))
	want(t, records, "size", 7.0)
	want(t, records, "ok", true)
}

func TestLogger(t *testing.T) {
	logger := needs(t, "logger")
	p := start(t, `{ syslog: { network: tcp, listen: "ADDRESS" } }`)
	host, port, _ := net.SplitHostPort(p.address)
	var lines strings.Builder
	for i := range count {
		fmt.Fprintf(&lines, "from logger %d\n", i)
	}
	cmd := exec.Command(logger, "--server", host, "--port", port, "--tcp", "--rfc5424",
		"--priority", "local3.warning", "--tag", "shop")
	cmd.Stdin = strings.NewReader(lines.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checkSyslog(t, p.arrived(field("message")))
}

// checkSyslog checks the types of a message of local3.warning by shop.
func checkSyslog(t *testing.T, records map[string]map[string]any) {
	t.Helper()
	want(t, records, "severity", "warning")
	want(t, records, "severity_code", 4.0)
	want(t, records, "facility", "local3")
	want(t, records, "facility_code", 19.0)
	want(t, records, "app_name", "shop")
}

// feed writes messages to a file for a daemon to read, and returns its path.
func feed(t *testing.T, dir, name string) string {
	t.Helper()
	var lines strings.Builder
	for i := range count {
		fmt.Fprintf(&lines, "from %s %d\n", name, i)
	}
	path := filepath.Join(dir, "input.log")
	if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRsyslog(t *testing.T) {
	rsyslogd := needs(t, "rsyslogd")
	p := start(t, `{ syslog: { network: tcp, listen: "ADDRESS" } }`)
	host, port, _ := net.SplitHostPort(p.address)
	dir := t.TempDir()
	config := filepath.Join(dir, "rsyslog.conf")
	text := fmt.Sprintf(`global(workDirectory=%q)
module(load="imfile" mode="inotify")
input(type="imfile" File=%q Tag="shop" Severity="warning" Facility="local3")
action(type="omfwd" Target=%q Port=%q Protocol="tcp" TCP_Framing="octet-counted"
       Template="RSYSLOG_SyslogProtocol23Format")
`, dir, feed(t, dir, "rsyslog"), host, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.launch(rsyslogd, "-n", "-f", config, "-i", filepath.Join(dir, "pid"))
	checkSyslog(t, p.arrived(field("message")))
}

func TestSyslogNG(t *testing.T) {
	root := os.Getenv("PENSTOCK_SYSLOG_NG")
	if root == "" {
		t.Skip("PENSTOCK_SYSLOG_NG does not name the folder of syslog-ng")
	}
	p := start(t, `{ syslog: { network: tcp, listen: "ADDRESS" } }`)
	host, port, _ := net.SplitHostPort(p.address)
	dir := t.TempDir()
	config := filepath.Join(dir, "syslog-ng.conf")
	text := fmt.Sprintf(`@version: 3.35
source in { file(%q program-override("shop") flags(no-parse)
  default-facility(local3) default-priority(warning) follow-freq(0.1)); };
destination out { syslog(%q port(%s) transport("tcp")); };
log { source(in); destination(out); };
`, feed(t, dir, "syslog-ng"), host, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.launch(filepath.Join(root, "usr/sbin/syslog-ng"), "--foreground", "--cfgfile", config,
		"--module-path", filepath.Join(root, "usr/lib/syslog-ng/3.38"),
		"--persist-file", filepath.Join(dir, "persist"), "--pidfile", filepath.Join(dir, "pid"),
		"--control", filepath.Join(dir, "control"), "--no-caps", "--stderr")
	checkSyslog(t, p.arrived(field("message")))
}

func TestElasticsearch(t *testing.T) {
	p := start(t, `{ http_server: { listen: "ADDRESS", format: elasticsearch_bulk } }`)
	client, err := elasticsearch.NewClient(elasticsearch.Config{
		Addresses: []string{"http://" + p.address}, CompressRequestBody: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	bulk, err := esutil.NewBulkIndexer(esutil.BulkIndexerConfig{Client: client, Index: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	stored := 0
	for i := range count {
		text := fmt.Sprintf(`{"message":"from elasticsearch %d","size":%d}`, i, i)
		err := bulk.Add(t.Context(), esutil.BulkIndexerItem{
			Action: "create", Body: strings.NewReader(text),
			OnSuccess: func(context.Context, esutil.BulkIndexerItem, esutil.BulkIndexerResponseItem) {
				mu.Lock()
				defer mu.Unlock()
				stored++
			},
			OnFailure: func(_ context.Context, _ esutil.BulkIndexerItem,
				r esutil.BulkIndexerResponseItem, err error) {
				t.Errorf("an item was refused: %v, %+v", err, r)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := bulk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stored != count {
		t.Errorf("%d items were reported as stored", stored)
	}
	want(t, p.arrived(field("message")), "size", 7.0)
}

func TestLoki(t *testing.T) {
	p := start(t, `{ http_server: { listen: "ADDRESS", format: loki } }`)
	client, err := loki.NewWithDefault("http://" + p.address + "/loki/api/v1/push")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for i := range count {
		labels := model.LabelSet{"app": "shop"}
		if err := client.Handle(labels, at, fmt.Sprintf("from promtail %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	client.Stop()
	records := p.arrived(field("message"))
	want(t, records, "labels/app", "shop")
	want(t, records, "timestamp", "2026-01-02T03:04:05.000000006Z")
}

func TestOTLP(t *testing.T) {
	p := start(t, `{ http_server: { listen: "ADDRESS", format: otlp } }`)
	exporter, err := otlploghttp.New(t.Context(), otlploghttp.WithEndpoint(p.address),
		otlploghttp.WithInsecure(), otlploghttp.WithCompression(otlploghttp.GzipCompression))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	logger := provider.Logger("shop/scope")
	for i := range count {
		var r log.Record
		r.SetBody(attribute.StringValue(fmt.Sprintf("from otlp %d", i)))
		r.SetSeverity(log.SeverityWarn)
		r.AddAttributes(attribute.Int("size", i), attribute.Bool("ok", true))
		logger.Emit(t.Context(), r)
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := p.arrived(field("body"))
	want(t, records, "severity_number", 13.0)
	want(t, records, "attributes/size", 7.0)
	want(t, records, "attributes/ok", true)
	want(t, records, "scope/name", "shop/scope")
}

func TestMain(m *testing.M) {
	http.DefaultTransport.(*http.Transport).Proxy = nil // loopback only
	os.Exit(m.Run())
}
