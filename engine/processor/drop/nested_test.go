package drop_test

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/drop"
	"github.com/penstock-io/penstock/stream"
)

func TestDropNested(t *testing.T) {
	in := []string{
		`{"user":{"email":"a@b","id":7},"user.email":"c@d","x":1}`,
		`{"user":{"email":{"home":"a@b"},"email":"c@d"}}`,
		`{"user":{"em\u0061il":"a@b","deep":{"email":1}}}`,
		`{"user":"text"}`, `{"user":null}`, `{"user":["email"]}`, `{}`, `plain`,
	}
	for _, c := range []struct {
		names, want []string
	}{
		{[]string{"user.email"}, []string{`{"user":{"id":7},"x":1}`, `{"user":{}}`,
			`{"user":{"deep":{"email":1}}}`,
			`{"user":"text"}`, `{"user":null}`, `{"user":["email"]}`, `{}`, `{"message":"plain"}`}},
		{[]string{`"user.email"`}, []string{`{"user":{"email":"a@b","id":7},"x":1}`, in[1], in[2],
			`{"user":"text"}`, `{"user":null}`, `{"user":["email"]}`, `{}`, `{"message":"plain"}`}},
		{[]string{"user.deep.email", "user.id", "x"},
			[]string{`{"user":{"email":"a@b"},"user.email":"c@d"}`, in[1],
				`{"user":{"em\u0061il":"a@b","deep":{}}}`, `{"user":"text"}`, `{"user":null}`,
				`{"user":["email"]}`, `{}`,
				`{"message":"plain"}`}},
	} {
		b := connectortest.Records(t, in...)
		if err := drop.New(c.names).Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := connectortest.Outcomes(b); !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %q\nwant %q", c.names, got, c.want)
		}
	}
}

// TestDropUnreadable checks a record whose object cannot be parsed. It must not be passed on,
// because the member to drop may be in the object.
func TestDropUnreadable(t *testing.T) {
	b := connectortest.Records(t, `{"user":{"\ud800":1,"email":"a@b"}}`)
	if err := drop.New([]string{"user.email"}).Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if b.Records[0].State != stream.Dead {
		t.Errorf("%q", connectortest.Outcomes(b))
	}
}

func TestDropNestedShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{
		{Name: "user", Type: stream.JSONType}, {Name: "path", Type: stream.TextType},
		{Name: "a.b", Type: stream.TextType},
	}}
	for _, c := range []struct{ name, want string }{
		{"user.email", ""},
		{"path.x", "[0]: path is a text, which has no member x"},
		{"nosuch.x", `[0]: there is no field "nosuch.x"`},
		{`"user.email"`, `[0]: there is no field "\"user.email\""`},
		{"a.b", ""},
		{`"a.b"`, ""},
	} {
		_, err := (&drop.Options{c.name}).Shape(in.Clone())
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if err := (&drop.Options{`"a`}).Validate(); err == nil {
		t.Error("a quote that does not close is fine")
	}
}

// TestDropCounts checks that names without a match in a batch are counted.
func TestDropCounts(t *testing.T) {
	c := drop.Component()
	h := connectortest.NewHost(t)
	p, err := c.New(&drop.Options{"user.emial", "x", "user.email"}, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.(stream.Processor).Process(t.Context(),
		connectortest.Records(t, `{"user":{"email":1}}`, `{"x":1}`)); err != nil {
		t.Fatal(err)
	}
	if n := h.Counted("names_unmatched"); n != 1 {
		t.Errorf("names_unmatched is %d, want 1", n)
	}
}

// FuzzDropNested checks that no part of a dropped value remains in the encoded output, whatever the
// record contains and however its key is encoded.
func FuzzDropNested(f *testing.F) {
	const secret = "s3cr3t-81726354"
	f.Add([]byte(`{"id":1}`), []byte(`"x"`), uint8(0))
	f.Add([]byte(`{"email":1,"user":{"email":[{}]}}`), []byte(`{"a":"\ud83d\ude00"}`), uint8(1))
	f.Add([]byte(`{ "a" : [ 1 , {"b":null} ] }`), []byte(`"\ud800"`), uint8(2))
	f.Add([]byte(`{"\ud800":"half"}`), []byte(`1e400`), uint8(3))
	f.Fuzz(func(t *testing.T, other, value []byte, shape uint8) {
		for _, text := range [][]byte{other, value} {
			if !utf8.Valid(text) || !stdjson.Valid(text) || bytes.ContainsAny(text, "\r\n") ||
				bytes.Contains(text, []byte(secret)) {
				return
			}
		}
		keys := []string{"email", `\u0065mail`, `em\u0061il`, `emai\u006C`}
		hidden := fmt.Sprintf(`["%s",%s]`, secret, value)
		user := fmt.Sprintf(`{"a":%s,"%s":%s,"email":"%s","b":%s}`, other, keys[shape%4], hidden,
			secret, other)
		text := fmt.Sprintf(`{"x":%s,"user":%s,"user.email":%s,"deep":{"user":%s}}`, other, user,
			hidden, user)
		b := connectortest.Records(t, text)
		if !b.Records[0].Parsed {
			return // parse refuses the text, so later processors get no fields
		}
		if err := drop.New([]string{"user.email", "deep.user.email"}).Process(t.Context(),
			b); err != nil {
			t.Fatal(err)
		}
		if out := ndjson.Append(nil, b); bytes.Contains(out, []byte(secret)) {
			t.Errorf("%s becomes %s", text, out)
		}
	})
}
