package elasticsearch_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/elasticsearch"
	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// request is a bulk request that a store received.
type request struct {
	*http.Request
	body string
}

// deliver sends JSON records to a store that accepts every request. It returns the request, and the
// reasons for the records that the sink itself refuses while it encodes them.
func deliver(t *testing.T, change func(*elasticsearch.Options), records ...string) (request, []string) {
	t.Helper()
	var got request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = request{r, string(body)}
		_, _ = io.WriteString(w, `{"errors":false}`)
	}))
	t.Cleanup(server.Close)
	o := elasticsearch.DefaultOptions()
	o.Endpoints = []httpsink.Endpoint{{URL: server.URL}}
	change(o)
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	s, err := elasticsearch.New(*o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b := connectortest.Records(t, records...)
	b.Time = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	if err := b.Encode(s); err != nil {
		t.Fatal(err)
	}
	var dead []string
	for i := range b.Records {
		if b.Records[i].State == stream.Dead {
			dead = append(dead, fmt.Sprint(i, ": ", b.Reason(i)))
		}
	}
	var lane stream.Lane
	err = s.Open(t.Context(), stream.SinkOptions{Lanes: func(all []stream.Lane) { lane = all[0] }})
	if err == nil {
		_, err = lane.Worker.Deliver(t.Context(), stream.Attempt{Value: b, ID: 1, Number: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	return got, dead
}

func TestDocuments(t *testing.T) {
	const at = `{"at":"2015-05-17T10:05:03+02:00","app":"shop"}`
	for _, c := range []struct {
		name    string
		change  func(*elasticsearch.Options)
		records []string
		want    string
	}{
		{
			"index", func(o *elasticsearch.Options) { o.Index = "logs" }, []string{at},
			`{"create":{"_index":"logs","_id":"ID"}}` + "\n" + at + "\n",
		},
		{
			"index by field and date", func(o *elasticsearch.Options) {
				o.Index, o.ID = `app + "-" + date(at).Format("2006.01.02")`, "none"
			},
			[]string{at, `{"at":"2026-11-24T00:00:00Z","app":"web"}`},
			`{"create":{"_index":"shop-2015.05.17"}}` + "\n" + at + "\n" +
				`{"create":{"_index":"web-2026.11.24"}}` + "\n" + `{"at":"2026-11-24T00:00:00Z","app":"web"}` + "\n",
		},
		{
			"one field", func(o *elasticsearch.Options) {
				o.Index, o.ID, o.Routing = "(app)", "none", "app"
			}, []string{at},
			`{"create":{"_index":"shop","routing":"shop"}}` + "\n" + at + "\n",
		},
		{
			"no routing value", func(o *elasticsearch.Options) { o.ID, o.Routing = "none", "customer" }, []string{at},
			`{"create":{}}` + "\n" + at + "\n",
		},
		{
			"data stream", func(o *elasticsearch.Options) {
				o.DataStream, o.ID, o.Timestamp = "logs-shop-default", "none", "at"
			},
			[]string{at, `{}`, `{"@timestamp":"x"}`},
			`{"create":{"_index":"logs-shop-default"}}` + "\n" +
				`{"@timestamp":"2015-05-17T08:05:03Z",` + at[1:] + "\n" +
				`{"create":{"_index":"logs-shop-default"}}` + "\n" + `{"@timestamp":"2026-11-24T12:00:00Z"}` + "\n" +
				`{"create":{"_index":"logs-shop-default"}}` + "\n" + `{"@timestamp":"x"}` + "\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, dead := deliver(t, c.change, c.records...)
			id := connectortest.Records(t, c.records...).AppendRecordID(nil, 0)
			if want := strings.Replace(c.want, `"ID"`, fmt.Sprintf("%q", id), 1); got.body != want || dead != nil {
				t.Errorf("sent\n%s\nwant\n%s\ndead: %q", got.body, want, dead)
			}
		})
	}
}

// TestRecordsWithoutIndex checks that a record without a valid index is dead-lettered, and that the
// others are delivered.
func TestRecordsWithoutIndex(t *testing.T) {
	got, dead := deliver(t, func(o *elasticsearch.Options) { o.Index, o.ID = "(app)", "none" },
		`{"app":"shop"}`, `{"app":"No Name"}`, `{}`, `{"app":"web"}`)
	want := `{"create":{"_index":"shop"}}` + "\n" + `{"app":"shop"}` + "\n" +
		`{"create":{"_index":"web"}}` + "\n" + `{"app":"web"}` + "\n"
	if got.body != want {
		t.Errorf("sent\n%s\nwant\n%s", got.body, want)
	}
	if len(dead) != 2 || !strings.HasPrefix(dead[0], `1: index: "No Name" is not an index name`) ||
		dead[1] != `2: index: "" is empty` {
		t.Errorf("dead letters: %q", dead)
	}
}

func TestRequest(t *testing.T) {
	for key, want := range map[string]string{"abc==": "abc==",
		"id:secret": base64.StdEncoding.EncodeToString([]byte("id:secret"))} {
		got, _ := deliver(t, func(o *elasticsearch.Options) { o.APIKey, o.Pipeline = key, "geo ip" }, `{}`)
		if h := got.Header.Get("Authorization"); h != "ApiKey "+want {
			t.Errorf("Authorization of %s is %q, want ApiKey %s", key, h, want)
		}
		if q := got.URL.Query(); got.URL.Path != "/_bulk" || q.Get("pipeline") != "geo ip" ||
			q.Get("filter_path") == "" {
			t.Errorf("sent to %v", got.URL)
		}
	}
}

func TestOptions(t *testing.T) {
	for key, change := range map[string]func(*elasticsearch.Options){
		"endpoints":   func(o *elasticsearch.Options) { o.Endpoints = nil },
		"index":       func(o *elasticsearch.Options) { o.Index = "Logs" },
		"data_stream": func(o *elasticsearch.Options) { o.Index, o.DataStream = "a", "b" },
		"action":      func(o *elasticsearch.Options) { o.DataStream, o.Action = "a", "index" },
		"id":          func(o *elasticsearch.Options) { o.ID = "key" },
		"id_field":    func(o *elasticsearch.Options) { o.IDField = "key" },
		"api_key":     func(o *elasticsearch.Options) { o.APIKey, o.Basic = "secret", &httpaccess.Basic{User: "u"} },
	} {
		o := elasticsearch.DefaultOptions()
		o.Endpoints = []httpsink.Endpoint{{URL: "http://a"}}
		change(o)
		err := o.Validate()
		if wrong, ok := errors.AsType[*stream.OptionError](err); !ok || wrong.Key != key ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := elasticsearch.New(*o, connectortest.NewHost(t)); err == nil {
			t.Errorf("%s: New accepted the options", key)
		}
	}
	o := elasticsearch.DefaultOptions()
	o.Index = `"logs-" + ap`
	_, err := o.Shape(stream.Schema{Fields: []stream.SchemaField{{Name: "app", Type: stream.TextType}}})
	if wrong, ok := errors.AsType[*stream.OptionError](err); !ok || wrong.Key != "index" || wrong.Word != "ap" {
		t.Errorf("Shape() = %v, want an error of index that names ap", err)
	}
}
