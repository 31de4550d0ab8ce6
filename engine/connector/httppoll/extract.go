//penstock:pure

package httppoll

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// content has the records of one page, their ids or cursors, and the token of the next page. A
// token is the part of a request that selects a page (see place).
type content struct {
	records [][]byte // each without line ends
	// digest of each record's id, if the option id is set; zero for a record without an id
	ids     []digest
	cursors []string // with the option after: the cursor of each record
	// token of the next page; "" or the token of this page if there is no next page yet
	next string
	// the last record has no line end, so the server may still be writing it; only with the format
	// lines
	open bool
}

// dropLast removes the last record.
func (c *content) dropLast() {
	n := len(c.records) - 1
	c.records, c.ids, c.cursors = c.records[:n], c.ids[:min(n, len(c.ids))],
		c.cursors[:min(n, len(c.cursors))]
}

var (
	messageFields  = []stream.SchemaField{{Name: stream.MessageName, Type: stream.TextType}}
	responseFields = []stream.SchemaField{
		{Name: "body"}, {Name: "status", Type: stream.IntegerType}, {Name: "headers", Type: stream.JSONType},
		{Name: "links", Type: stream.JSONType}, {Name: "cursor", Type: stream.TextType},
	}
	// responseSchema lists the fields that an expression can use in the option `records`.
	// pageSchema lists those for the option `next`.
	responseSchema = stream.Schema{Fields: responseFields}
	pageSchema     = stream.Schema{Fields: append(responseFields[:len(responseFields):len(responseFields)],
		stream.SchemaField{Name: "count", Type: stream.IntegerType}, stream.SchemaField{Name: "last"})}
)

// view has the parts of a response that expressions can use.
type view struct {
	*response
	body    []byte // without byte order mark and surrounding spaces
	links   map[string]string
	token   string   // token of the page
	content *content // nil before the records are extracted
}

// errFormat means that a response is not JSON although the format json is configured. An example is
// an HTML page of a proxy.
var errFormat = errors.New("the response does not have the expected format")

// extract returns the records in a response, and the token of the next page.
func (o *Options) extract(r *response, token string) (content, error) {
	var c content
	var err error
	v := view{response: r, links: parseLinks(r.header["Link"]), token: token}
	v.body = bytes.TrimSpace(bytes.TrimPrefix(r.body, []byte("\uFEFF")))
	if o.Format == Lines {
		for line := range bytes.Lines(r.body) {
			c.open = line[len(line)-1] != '\n'
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
				c.records = append(c.records, line)
			} else {
				c.open = false
			}
		}
	} else if c.records, err = o.jsonRecords(&v); err != nil {
		return c, err
	}
	if p := cmp.Or(o.id, o.after); p != nil {
		if err = o.identify(p, &c); err != nil {
			return c, err
		}
	}
	if !o.mode().perRecord() {
		v.content = &c
		c.next, err = o.nextToken(&v)
	}
	return c, err
}

// jsonRecords returns the elements of the array, each without line ends.
func (o *Options) jsonRecords(v *view) ([][]byte, error) {
	if len(v.body) == 0 && v.status == 204 {
		return nil, nil
	}
	if err := checkJSON(v.body); err != nil {
		return nil, err
	}
	array := v.body
	if o.records != nil {
		f, b, err := o.evaluate(o.records, v)
		if err != nil {
			return nil, fmt.Errorf("`records`: %w", err)
		}
		if f.Kind == stream.Null {
			return nil, fmt.Errorf("`records`: %[1]s is null or missing; if that means no "+
				"records, write (%[1]s) ?? []", o.Records)
		}
		array = b.Value(f)
	}
	if len(array) == 0 || array[0] != '[' {
		if o.records == nil {
			return nil, errors.New("the response is not an array; set `records` to the array of " +
				"records, such as body.items")
		}
		return nil, fmt.Errorf("`records`: %s is not an array", o.Records)
	}
	return elements(array)
}

func checkJSON(body []byte) error {
	var any json.RawMessage
	if err := json.Unmarshal(body, &any); err != nil {
		return fmt.Errorf("%w: want JSON: %w", errFormat, err)
	}
	return nil
}

// elements returns the elements of a valid array.
func elements(array []byte) ([][]byte, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(array, &list); err != nil {
		return nil, err
	}
	out := make([][]byte, len(list))
	var line bytes.Buffer
	for i, element := range list {
		line.Reset()
		if err := json.Compact(&line, element); err != nil {
			return nil, err
		}
		out[i] = bytes.Clone(line.Bytes())
	}
	return out, nil
}

// identify evaluates p for each record of c, and stores the results in c. p is the expression of
// the option `id` or of the option `after`.
func (o *Options) identify(p *expr.Program, c *content) error {
	b := stream.NewBatch(stream.BatchLimits{})
	for _, text := range c.records {
		readers.AppendRecord(b, text, stream.Position{})
	}
	b.Spans = []stream.Span{{Part: new(stream.Partition), Bytes: len(b.Data)}}
	if o.Format == JSON {
		new(intake.Objects).Add(b)
	}
	e := expr.NewEvaluator(p)
	e.Begin(b)
	var text []byte
	for i := range c.records {
		var err error
		if text, err = e.AppendText(text[:0], i); err != nil {
			return fmt.Errorf("record %d: %w", i+1, err)
		}
		switch {
		case p == o.after && len(text) == 0:
			return fmt.Errorf("`after`: %s is null or missing in record %d", o.After, i+1)
		case p == o.after:
			c.cursors = append(c.cursors, string(text))
		case len(text) == 0:
			c.ids = append(c.ids, digest{})
		default:
			c.ids = append(c.ids, digestOf(text))
		}
	}
	return nil
}

// nextToken returns the token of the next page.
func (o *Options) nextToken(v *view) (string, error) {
	next := v.links["next"]
	if o.next != nil {
		f, b, err := o.evaluate(o.next, v)
		switch {
		case err != nil:
			return "", fmt.Errorf("`next`: %w", err)
		case f.Kind == stream.JSON || f.Kind == stream.Bool:
			return "", fmt.Errorf("`next`: %s is neither text nor a number", o.Next)
		}
		next = string(b.Value(f))
	}
	if next == "" || o.mode() == byCursor {
		return next, nil
	}
	return o.sameServer(v.url, next)
}

// sameServer returns the path and query of link. A relative link is resolved against base. If the
// link leads to another server, sameServer returns an error: that server would get the credentials.
func (o *Options) sameServer(base *url.URL, link string) (string, error) {
	u, err := base.Parse(link)
	if err != nil {
		return "", errors.New("`next`: the link to the next page is not a URL; for a cursor set " +
			"`cursor`")
	}
	if u.Scheme != o.target.Scheme || !strings.EqualFold(u.Host, o.target.Host) || u.User != nil {
		return "", fmt.Errorf("`next`: the link to the next page leads to another server, "+
			"%s://%s; only the server of url is allowed",
			u.Scheme, u.Host)
	}
	return u.RequestURI(), nil
}

// evaluate returns the value of an expression over a response. The value's bytes are in the
// returned batch.
func (o *Options) evaluate(p *expr.Program, v *view) (stream.Field, *stream.Batch, error) {
	body := v.body
	b := stream.NewBatch(stream.BatchLimits{})
	add := func(name string, kind stream.Kind, value []byte) {
		b.Fields = append(b.Fields, stream.Field{
			Name: uint32(len(b.Names)), Kind: kind, Off: uint32(len(b.Data)), Len: uint32(len(value)),
		})
		b.Names = append(b.Names, name)
		b.Data = append(b.Data, value...)
	}
	kind := stream.Null
	switch {
	case o.Format == Lines:
		kind = stream.Text
	case len(body) > 0 && (body[0] == '{' || body[0] == '['):
		kind = stream.JSON
	default:
		body = nil
	}
	headers := make(map[string]string)
	for name, values := range v.header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	add("body", kind, body)
	add("status", stream.Number, strconv.AppendInt(nil, int64(v.status), 10))
	for _, m := range []struct {
		name   string
		values map[string]string
	}{{"headers", headers}, {"links", v.links}} {
		text, err := json.Marshal(m.values)
		if err != nil {
			return stream.Field{}, nil, err
		}
		add(m.name, stream.JSON, text)
	}
	add("cursor", stream.Text, []byte(v.token))
	if c := v.content; c != nil {
		add("count", stream.Number, strconv.AppendInt(nil, int64(len(c.records)), 10))
		switch n := len(c.records); {
		case n == 0:
			add("last", stream.Null, nil)
		case o.Format == Lines:
			add("last", stream.Text, c.records[n-1])
		default:
			add("last", kindOf(c.records[n-1]), c.records[n-1])
		}
	}
	b.Records = []stream.Record{{NumFields: uint32(len(b.Fields)), Parsed: true}}
	b.Spans = []stream.Span{{Part: new(stream.Partition)}}
	e := expr.NewEvaluator(p)
	e.Begin(b)
	f, err := e.Field(0)
	return f, b, err
}

// kindOf returns the kind of an element of a JSON array. Objects and arrays are of kind JSON. Any
// other element, such as a number, counts as text.
func kindOf(element []byte) stream.Kind {
	if element[0] == '{' || element[0] == '[' {
		return stream.JSON
	}
	return stream.Text
}
