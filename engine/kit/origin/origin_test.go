package origin_test

import (
	"os"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/origin"
	"github.com/penstock-io/penstock/stream"
)

// shown adds the fields to a batch of two files, and returns them as text.
func shown(t *testing.T, o origin.Options, root string) string {
	t.Helper()
	a, err := origin.New(o, root)
	if err != nil {
		t.Fatal(err)
	}
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = append(b.Data, "one\ntwo\nthree\n"...)
	part := func(name string) *stream.Partition { return &stream.Partition{ID: name, Name: name} }
	at := func(from, to int64) stream.Range {
		return stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: to}}
	}
	b.Spans = []stream.Span{
		{Part: part("/var/log/shop/2026-11-21.log"), Range: at(100, 108), Bytes: 8},
		{Part: part("sub/cart.2.log"), Range: at(0, 6), Bytes: 6},
	}
	b.Origins = 3
	a.Add(b)
	b.Split()
	var out strings.Builder
	for i := range b.Records {
		for _, f := range b.FieldsOf(i) {
			out.WriteString(b.Names[f.Name] + "=" + string(b.Value(f)) + " ")
		}
		out.WriteString("| ")
	}
	return out.String()
}

func TestAdd(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		o          origin.Options
		root, want string
	}{
		{origin.Options{}, "", "| | | "},
		{origin.Options{File: "file", Offset: "at"}, "/in", "message=one " +
			"file=/var/log/shop/2026-11-21.log at=100 | " +
			"message=two file=/var/log/shop/2026-11-21.log at=104 | message=three " +
			"file=/in/sub/cart.2.log at=0 | "},
		{origin.Options{Offset: "at", Host: "host"}, "",
			"message=one at=100 host=" + host + " | message=two at=104 host=" + host +
				" | message=three at=0 host=" + host + " | "},
		{origin.Options{Path: "/var/log/{app}/{date}.log"}, "", "message=one app=shop " +
			"date=2026-11-21 | " +
			"message=two app=shop date=2026-11-21 | message=three app= date= | "},
		{origin.Options{Path: "{name}.*log"}, "", "message=one name=2026-11-21 | message=two " +
			"name=2026-11-21 | message=three name=cart | "},
		{origin.Options{Path: "/in/{dir}/{name}.{n}.log"}, "/in", "message=one dir= name= n= | " +
			"message=two dir= name= n= | " +
			"message=three dir=sub name=cart n=2 | "},
		{origin.Options{File: "log.file", Offset: "log.at", Path: "{app.name}.*log"}, "/in",
			`message=one log={"file":"/var/log/shop/2026-11-21.log","at":100} ` +
				`app={"name":"2026-11-21"} | ` +
				`message=two log={"file":"/var/log/shop/2026-11-21.log","at":104} ` +
				`app={"name":"2026-11-21"} | ` +
				`message=three log={"file":"/in/sub/cart.2.log","at":0} app={"name":"cart"} | `},
		{origin.Options{Offset: `"log.at"`, Path: "/var/log/{log.app}/*"}, "",
			`message=one log.at=100 log={"app":"shop"} | message=two log.at=104 log={"app":"shop"} | ` +
				`message=three log.at=0 log={"app":null} | `},
	} {
		if got := shown(t, tt.o, tt.root); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.o, got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		o    origin.Options
		want string
	}{
		{origin.Options{Path: "/var/log/*.log"}, "names no field"},
		{origin.Options{Path: "/var/{log"}, "a brace without"},
		{origin.Options{Path: "/var/{}/x"}, "a brace without"},
		{origin.Options{File: "x", Path: "/{x}"}, "two meanings"},
		{origin.Options{Host: "message"}, "two meanings"},
		{origin.Options{Host: "message.host"}, "two meanings"},
		{origin.Options{File: "log.file", Host: "log.file.host"}, "two meanings"},
		{origin.Options{File: "log", Host: "log.host"}, "two meanings"},
		{origin.Options{Host: `"log`}, "begins with a quote"},
	} {
		if err := tt.o.Validate("meta"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	good := origin.Options{File: "f", Offset: "o", Host: "h", Path: "{a}/{b}.log"}
	if err := good.Validate("meta"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(good.Shape(stream.UnparsedSchema()).Names(),
		" "); got != "message f o h a b" {
		t.Errorf("the schema has %s", got)
	}
	nested := origin.Options{File: "log.file", Offset: "log.at", Host: `"log.host"`}
	if err := nested.Validate("meta"); err != nil {
		t.Error(err)
	}
	names := nested.Shape(stream.UnparsedSchema()).Names()
	if got := strings.Join(names, " "); got != "message log log.host" {
		t.Errorf("the schema has %s", got)
	}
}

// FuzzPath checks that a pattern is either refused or can be used with any name.
func FuzzPath(f *testing.F) {
	f.Add("/var/log/{app}/{date}.log", "/var/log/a/b.log")
	f.Add("{a}{b}*", "x")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		o := origin.Options{Path: pattern}
		if pattern == "" || o.Validate("meta") != nil {
			return
		}
		a, err := origin.New(o, "")
		if err != nil {
			t.Fatal(err)
		}
		b := stream.NewBatch(stream.BatchLimits{})
		b.Data = append(b.Data, "x\n"...)
		b.Spans = []stream.Span{{Part: &stream.Partition{ID: "p", Name: name}, Bytes: 2}}
		b.Origins = 1
		a.Add(b)
		if len(b.FieldsOf(0)) < 2 {
			t.Errorf("%q gives no field", pattern)
		}
	})
}

// TestOffsetOfOneOrigin checks that several records made from one source record get the offset at
// which the source record begins.
func TestOffsetOfOneOrigin(t *testing.T) {
	a, err := origin.New(origin.Options{Offset: "at"}, "")
	if err != nil {
		t.Fatal(err)
	}
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = append(b.Data, "one\ntwo\nthree\n"...)
	part := &stream.Partition{ID: "a", Name: "a"}
	at := func(n int64) stream.Position { return stream.Position{Num: n} }
	b.Spans = []stream.Span{{
		Part: part, Range: stream.Range{From: at(100), To: at(190)}, Bytes: 14,
	}}
	b.Records = []stream.Record{
		{Len: 3, Origin: at(150)}, {Off: 4, Len: 3, Sub: 1, Origin: at(150)},
		{Off: 8, Len: 5, Origin: at(190)},
	}
	a.Add(b)
	got := ""
	for i := range b.Records {
		got += string(b.Value(b.FieldsOf(i)[1])) + " "
	}
	if want := "100 100 150 "; got != want {
		t.Errorf("offsets %s, want %s", got, want)
	}
}
