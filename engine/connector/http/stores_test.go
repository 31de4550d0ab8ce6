package http_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathbig "math/big"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/elasticsearch"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// parsed returns a batch of two parsed records and a plain one.
func parsed() *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = []byte("first\nsecond\nthird\n")
	b.Origins = 3
	b.Spans = []stream.Span{{Part: &stream.Partition{ID: "p"},
		Range: stream.Range{To: stream.Position{Num: 19}}, Bytes: 19}}
	b.Split()
	put := func(i int, pairs ...string) {
		b.Records[i].Field = uint32(len(b.Fields))
		for n := 0; n < len(pairs); n += 2 {
			b.Names = append(b.Names, pairs[n])
			b.Fields = append(b.Fields, stream.Field{
				Name: uint32(len(b.Names) - 1), Off: uint32(len(b.Data)), Len: uint32(len(pairs[n+1])),
			})
			b.Data = append(b.Data, pairs[n+1]...)
			b.Records[i].NumFields++
		}
	}
	put(0, "host", "a\"b", "at", "17/May/2015:10:05:03 +0000", "key", "k1")
	put(1, "host", "c", "at", "1431857104123")
	b.Parsed()
	return b
}

// sent returns the request that a sink with these options sends for the batch.
func sent(t *testing.T, b *stream.Batch, change func(*http.Options)) (body string, r *nethttp.Request) {
	t.Helper()
	endpoint := answering(t, func(w nethttp.ResponseWriter, req *nethttp.Request) {
		text, _ := io.ReadAll(req.Body)
		body, r = string(text), req
		_, _ = io.WriteString(w, `{"errors":false}`)
	})
	if err := deliver(t.Context(), rawTo(t, endpoint, change), b); err != nil {
		t.Fatal(err)
	}
	return body, r
}

func TestStoreForms(t *testing.T) {
	records := []string{
		`{"host":"a\"b","at":"17/May/2015:10:05:03 +0000","key":"k1"}`,
		`{"host":"c","at":"1431857104123"}`, `{"message":"third"}`,
	}
	for _, c := range []struct {
		name, want, path, query string
		change                  func(*http.Options)
	}{
		{"json_array", "[" + strings.Join(records, ",\n") + "]\n", "/", "", func(o *http.Options) {
			o.Body = http.JSONArray
		}},
		{
			"elasticsearch", `{"create":{"_index":"logs","_id":"p@6"}}` + "\n" + records[0] + "\n" +
				`{"create":{"_index":"logs","_id":"p@13"}}` + "\n" +
				records[1] + "\n" + `{"create":{"_index":"logs","_id":"p@19"}}` + "\n" + records[2] + "\n",
			"/_bulk", "errors,items.*.status,items.*.error.type,items.*.error.reason",
			func(o *http.Options) { o.Body, o.Elasticsearch.Index = http.ElasticsearchBulk, "logs" },
		},
		{
			"elasticsearch by field", `{"index":{"_id":"k1"}}` + "\n" + records[0] + "\n" +
				`{"index":{}}` + "\n" + records[1] + "\n" +
				`{"index":{}}` + "\n" + records[2] + "\n", "/_bulk", "",
			func(o *http.Options) {
				o.Body = http.ElasticsearchBulk
				o.Elasticsearch = elasticsearch.Documents{Action: "index", IDField: "key", ID: "none"}
			},
		},
		{
			"loki", `{"streams":[{"stream":{"job":"x","host":"a\"b"},"values":[["1431857103000000000",` +
				fmt.Sprintf("%q", records[0]) + `]]},` +
				`{"stream":{"job":"x","host":"c"},"values":[["1431857104123000000",` +
				fmt.Sprintf("%q", records[1]) + `]]}]}`,
			"/loki/api/v1/push", "",
			func(o *http.Options) {
				o.Body = http.Loki
				o.Loki.Labels, o.Loki.LabelFields, o.Loki.Timestamp = map[string]string{"job": "x"},
					[]string{"host"}, "at"
			},
		},
		{
			"clickhouse", strings.Join(records, "\n") + "\n", "/", "INSERT INTO `d`.`a\\`b` FORMAT JSONEachRow",
			func(o *http.Options) {
				o.Body = http.ClickHouse
				o.ClickHouse.Database, o.ClickHouse.Table = "d", "a`b"
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := parsed()
			if c.name == "loki" {
				b.Drop(2) // this record would have the time of reading
			}
			body, r := sent(t, b, c.change)
			if body != c.want {
				t.Errorf("sent\n%s\nwant\n%s", body, c.want)
			}
			q := r.URL.Query()
			if r.URL.Path != c.path || c.query != "" && q.Get("filter_path") != c.query && q.Get("query") != c.query {
				t.Errorf("sent to %s?%s, want %s and %q", r.URL.Path, r.URL.RawQuery, c.path, c.query)
			}
			if token := q.Get("insert_deduplication_token"); c.name == "clickhouse" &&
				(token == "" || token != r.Header.Get("Idempotency-Key")) {
				t.Errorf("the token is %q, want the idempotency key", token)
			}
		})
	}
}

// TestBulkAnswers checks responses to _bulk requests of Elasticsearch. The status of each item must
// determine the outcome of the record in that item. An implausible response settles nothing.
func TestBulkAnswers(t *testing.T) {
	item := func(status int) string {
		return fmt.Sprintf(`{"create":{"status":%d,"error":{"type":"t%d","reason":"r"}}}`, status, status)
	}
	for _, c := range []struct{ answer, want string }{
		{`{"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}},{"create":{"status":201}}]}`, "<nil>"},
		{`{"errors":false}`, "<nil>"},
		{`{"errors":true,"items":[` + item(409) + `,` + item(201) + `,` + item(200) + `]}`, "<nil>"},
		{`{"errors":true,"items":[` + item(429) + `,` + item(429) + `,` + item(503) + `]}`, "*flow.Throttled"},
		{`{"errors":true,"items":[` + item(503) + `,` + item(503) + `,` + item(503) + `]}`, "t503"},
		{`{"errors":true,"items":[` + item(404) + `,` + item(503) + `,` + item(404) + `]}`, "*flow.Misconfigured"},
		{`{"errors":true,"items":[` + item(201) + `,` + item(400) + `,` + item(429) + `]}`,
			"split done p@6; rest p@19; refused p@13 t400"},
		{
			`{"errors":true,"items":[` + item(400) + `,` + item(413) + `,` + item(400) + `]}`,
			"split refused p@6 p@19 t400; refused p@13 t413",
		},
		{`{"errors":true,"items":[` + item(201) + `]}`, "1 items for 3 records"},
		{`<html>welcome</html>`, "not a bulk response"},
		{``, "not a bulk response"},
		{`{"errors":true}`, "0 items for 3 records"},
	} {
		endpoint := answering(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			_, _ = io.WriteString(w, c.answer)
		})
		err := deliver(t.Context(), rawTo(t, endpoint, func(o *http.Options) {
			o.Body = http.ElasticsearchBulk
		}), parsed())
		if got := told(err); !strings.Contains(got, c.want) {
			t.Errorf("%s\ngives %s, want %s", c.answer, got, c.want)
		}
	}
}

// told describes an outcome as text: the ids of the records in each part.
func told(err error) string {
	s, ok := errors.AsType[*stream.Split](err)
	if !ok {
		return fmt.Sprintf("%T %v", errors.Unwrap(&wrap{err}), err)
	}
	ids := func(items []stream.Item) string {
		var out []string
		for _, it := range items {
			for i := range it.Value.Records {
				out = append(out, string(it.Value.AppendRecordID(nil, i)))
			}
		}
		return strings.Join(out, " ")
	}
	var parts []string
	if len(s.Done) > 0 {
		parts = append(parts, "done "+ids(s.Done))
	}
	if len(s.Rest) > 0 {
		parts = append(parts, "rest "+ids(s.Rest))
	}
	var kinds []string
	byKind := map[string][]string{}
	for i := range s.Refused {
		own, _ := errors.AsType[*stream.RefusedError](s.Refusals[i])
		for _, id := range strings.Fields(ids(s.Refused[i : i+1])) {
			_, reason, _ := strings.Cut(fmt.Sprint(own.Reasons[id]), `"`)
			kind, _, _ := strings.Cut(reason, ":")
			if byKind[kind] == nil {
				kinds = append(kinds, kind)
			}
			byKind[kind] = append(byKind[kind], id)
		}
	}
	for _, kind := range kinds {
		parts = append(parts, "refused "+strings.Join(byKind[kind], " ")+" "+kind)
	}
	return "split " + strings.Join(parts, "; ")
}

type wrap struct{ error }

func (w *wrap) Unwrap() error { return w.error }

// TestClickHouseExceptions checks that the code of an exception takes precedence over the status if
// the sink knows the code.
func TestClickHouseExceptions(t *testing.T) {
	for _, c := range []struct {
		status     int
		code, body string
		want       string
	}{
		{200, "", "", "<nil>"},
		{500, "27", "Code: 27. DB::Exception: Cannot parse input", "*flow.Rejected"},
		{404, "60", "Code: 60. DB::Exception: Unknown table", "*flow.Misconfigured"},
		{500, "252", "Code: 252. DB::Exception: Too many parts", "*flow.Throttled"},
		{500, "999", "Code: 999. DB::Exception: Keeper", "*httpsink.StatusError"},
		{200, "", "Code: 241. DB::Exception: Memory limit", "*flow.Throttled"},
		{200, "999", "", "*httpsink.StatusError"},
	} {
		endpoint := answering(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			if c.code != "" {
				w.Header().Set("X-ClickHouse-Exception-Code", c.code)
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		lane := rawTo(t, endpoint, func(o *http.Options) { o.Body, o.ClickHouse.Table = http.ClickHouse, "t" })
		err := deliver(t.Context(), lane, parsed())
		if got := told(err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%d, code %q, %q gives %s, want %s", c.status, c.code, c.body, got, c.want)
		}
	}
}

// TestToken checks that a wrong token in the token file leads to the outcome misconfigured. When
// the file is corrected, the sink recovers without a restart.
func TestToken(t *testing.T) {
	good := "first"
	endpoint := answering(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.Header.Get("Authorization") != "Bearer "+good {
			w.WriteHeader(nethttp.StatusUnauthorized)
		}
	})
	file := filepath.Join(t.TempDir(), "token")
	put := func(s string) {
		if err := os.WriteFile(file, []byte(s+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	lane := rawTo(t, endpoint, func(o *http.Options) { o.BearerFile = file })
	if err := deliver(t.Context(), lane, parsed()); err != nil {
		t.Fatal(err)
	}
	good = "second"
	if got := told(deliver(t.Context(), lane, parsed())); !strings.HasPrefix(got,
		"*flow.Misconfigured") || strings.Contains(got, "first") {
		t.Errorf("a wrong token gives %s", got)
	}
	put("second")
	_ = deliver(t.Context(), lane, parsed()) // refused once more; then the file is read again
	if err := deliver(t.Context(), lane, parsed()); err != nil {
		t.Errorf("with the mended token: %v", err)
	}
}

// authority issues certificates.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	ca   string // PEM file
	last int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.ca, _, a.key, a.cert = a.issue("ca", true)
	return a
}

func (a *authority) issue(name string,
	isCA bool) (certFile, keyFile string, key *ecdsa.PrivateKey, cert *x509.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.last++
	form := &x509.Certificate{
		SerialNumber: mathbig.NewInt(a.last), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: isCA,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = form, key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, _ = x509.ParseCertificate(der)
	pkcs, _ := x509.MarshalPKCS8PrivateKey(key)
	return a.file(name+".pem", "CERTIFICATE", der), a.file(name+".key", "PRIVATE KEY", pkcs), key, cert
}

func (a *authority) file(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// TestTLS checks that the sink only talks to a receiver with a certificate of the authority and the
// expected name. It sends its own certificate to a receiver that requests one. Each failure is
// reported as misconfigured, so that it is not retried silently forever.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	serverCert, serverKey, _, _ := a.issue("receiver.test", false)
	ourCert, ourKey, _, _ := a.issue("penstock.test", false)
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(nethttp.ResponseWriter, *nethttp.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, c := range []struct {
		name string
		tls  httpaccess.TLS
		want string
	}{
		{"right", httpaccess.TLS{CA: a.ca, Cert: ourCert, Key: ourKey, ServerName: "receiver.test"}, "<nil>"},
		{"unknown authority",
			httpaccess.TLS{Cert: ourCert, Key: ourKey, ServerName: "receiver.test"}, ": misconfigured: "},
		{"another name", httpaccess.TLS{CA: a.ca, Cert: ourCert, Key: ourKey,
			ServerName: "else.test"}, ": misconfigured: "},
		{"no certificate of ours", httpaccess.TLS{CA: a.ca, ServerName: "receiver.test"}, ": misconfigured: "},
	} {
		lane := rawTo(t, server.URL, func(o *http.Options) { o.TLS = c.tls })
		got := ""
		// With TLS 1.3, a server refuses a client only after the handshake. So sending the body may
		// fail before the sink reads the reason: try again until it has read the reason.
		for range 20 {
			if got = told(deliver(t.Context(), lane, parsed())); strings.Contains(got, c.want) {
				break
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestProxy checks that requests go to the configured proxy. Each request must contain the URL of
// the endpoint, and the password of the proxy.
func TestProxy(t *testing.T) {
	endpoint := answering(t, func(nethttp.ResponseWriter, *nethttp.Request) {})
	var seen []string
	proxy := answering(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		seen = append(seen, r.URL.String()+" "+r.Header.Get("Proxy-Authorization"))
	})
	u, _ := url.Parse(proxy)
	u.User = url.UserPassword("me", "secret")
	if err := deliver(t.Context(), rawTo(t, endpoint, func(o *http.Options) {
		o.Proxy = u.String()
	}), parsed()); err != nil {
		t.Fatal(err)
	}
	if want := endpoint + "/ Basic bWU6c2VjcmV0"; len(seen) != 1 || seen[0] != want {
		t.Errorf("the proxy saw %q, want %q", seen, want)
	}
}

// TestStoreOptions checks that invalid options are refused at startup.
func TestStoreOptions(t *testing.T) {
	for key, change := range map[string]func(*http.Options){
		"elasticsearch": func(o *http.Options) { o.Elasticsearch.Index = "x" },
		"elasticsearch.id_field": func(o *http.Options) {
			o.Body, o.Elasticsearch.IDField = http.ElasticsearchBulk, "k"
		},
		"elasticsearch.index": func(o *http.Options) {
			o.Body, o.Elasticsearch.Index = http.ElasticsearchBulk, "Logs"
		},
		"loki": func(o *http.Options) { o.Loki.Timestamp = "at" },
		"loki.labels.1a": func(o *http.Options) {
			o.Body, o.Loki.Labels = http.Loki, map[string]string{"1a": "x"}
		},
		"loki.label_fields": func(o *http.Options) {
			o.Body, o.Loki.LabelFields = http.Loki, []string{"a.b", "a_b"}
		},
		"clickhouse.table": func(o *http.Options) { o.Body = http.ClickHouse },
		"clickhouse":       func(o *http.Options) { o.ClickHouse.Table = "t" },
		"tls":              func(o *http.Options) { o.TLS.CA = "ca.pem" },
		"proxy":            func(o *http.Options) { o.Proxy = "ftp://secret@x" },
		"bearer":           func(o *http.Options) { o.Bearer = "secret word" },
		"basic.user":       func(o *http.Options) { o.Basic = &httpaccess.Basic{Password: "secret"} },
		"headers.authorization": func(o *http.Options) {
			o.Bearer, o.Headers = "secret", map[string]string{"authorization": "x"}
		},
		"endpoints": func(o *http.Options) {
			o.Bearer, o.Endpoints = "secret", []httpsink.Endpoint{{URL: "http://me:secret@a"}}
		},
	} {
		o := http.DefaultOptions()
		o.Endpoints = []httpsink.Endpoint{{URL: "http://a"}}
		change(o)
		err := o.Validate()
		if wrong, ok := errors.AsType[*stream.OptionError](err); !ok || wrong.Key != key ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
