//penstock:pure

package httpserver

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// bulkItem is an action of a _bulk request, with its result.
type bulkItem struct {
	action, index, id []byte // as in the request, without quotes
	problem           string // why the document was refused; "" if it was accepted
}

// itemBytes is the approximate memory of one action of a _bulk request in bytes: its bulkItem, and
// its part of the response.
const itemBytes = 384

// maxIndex is the maximum length in bytes of an index in the path of a request. Elasticsearch has
// the same limit.
const maxIndex = 255

// bulkInto returns a decoder of _bulk requests. An action without the member _index gets the index
// in the path of the request, or none if index is empty.
func bulkInto(index string) decoder {
	var text []byte // as in JSON, without quotes
	if index != "" {
		text = ndjson.AppendString(nil, index)
		text = text[1 : len(text)-1]
	}
	return func(_ string, body []byte, maxRecord int, room room) (decoded, error) {
		return decodeBulk(body, text, maxRecord, room)
	}
}

// decodeBulk returns the documents of a _bulk request as records. It adds the _index and _id of
// their actions as members. If an action is not supported, or its document is invalid or too long,
// only this action fails. If an action line is invalid, or the last document is missing, the whole
// body is refused.
func decodeBulk(body, index []byte, maxRecord int, room room) (decoded, error) {
	var d decoded
	var s json.Scanner
	var items []bulkItem
	var record []byte
	number := 0
	next := func() (line []byte, more bool) {
		for len(body) > 0 {
			number++
			line, body, _ = bytes.Cut(body, newline)
			if line = bytes.TrimSpace(line); len(line) > 0 {
				return line, true
			}
		}
		return nil, false
	}
	for {
		line, more := next()
		if !more {
			break
		}
		item, err := parseAction(&s, line)
		if err != nil {
			return decoded{}, fmt.Errorf("line %d is not an action: %w", number, err)
		}
		if item.index == nil {
			item.index = index
		}
		used := (itemBytes + int64(len(index))) * int64(len(items)+1)
		if err := room(used); err != nil {
			return decoded{}, err
		}
		action := string(item.action)
		if action == "delete" {
			item.problem = "delete is not supported; send index or create"
			items = append(items, item)
			continue
		}
		document, more := next()
		if !more {
			return decoded{}, fmt.Errorf("line %d: the document of action %s is missing", number, action)
		}
		what, at := scanObject(&s, document)
		switch {
		case action == "update":
			item.problem = "update is not supported; send index or create"
		case len(document) > maxRecord:
			item.problem = tooLong("line", number, len(document), maxRecord).Error()
		case what != "":
			item.problem = fmt.Sprintf("line %d is not a JSON object: %s, at byte %d", number, what, at+1)
		default:
			record = appendDocument(record[:0], &s, item, document)
			if len(record) > maxRecord {
				item.problem = tooLong("the record of line", number, len(record), maxRecord).Error()
			} else if err := d.add(record, used, room); err != nil {
				return decoded{}, err
			}
		}
		items = append(items, item)
	}
	d.reply = reply{200, typeJSON, appendBulk(nil, items)}
	return d, nil
}

// parseAction reads an action line, such as {"index":{"_index":"logs","_id":"1"}}.
func parseAction(s *json.Scanner, line []byte) (item bulkItem, err error) {
	s.Start(line, 0, len(line))
	if !s.Next() {
		what, at := s.Wrong()
		if what == "" {
			what = "the object is empty"
		}
		return item, fmt.Errorf("%s, at byte %d", what, at+1)
	}
	item.action = line[s.Key.Off : s.Key.Off+s.Key.Len]
	meta := line[s.Value.Off : s.Value.Off+s.Value.Len]
	switch string(item.action) {
	case "index", "create", "update", "delete":
	default:
		return item, fmt.Errorf("%.40q is not one of index, create, update, delete", item.action)
	}
	if s.Next() {
		return item, fmt.Errorf("it has more than one member")
	}
	if what, at := s.Wrong(); what != "" {
		return item, fmt.Errorf("%s, at byte %d", what, at+1)
	}
	for _, m := range []struct {
		key string
		to  *[]byte
	}{{"_index", &item.index}, {"_id", &item.id}} {
		v, ok := s.Member(meta, m.key)
		switch {
		case !ok || v.Kind == stream.Null:
		case v.Kind == stream.JSON:
			return item, fmt.Errorf("its %s is not a text", m.key)
		default: // like Elasticsearch, a number or a boolean counts as text
			*m.to = meta[v.Off : v.Off+v.Len]
		}
	}
	return item, nil
}

// appendDocument appends a document. The _index and _id of its action become the first members,
// unless the document itself has members with these names.
func appendDocument(dst []byte, s *json.Scanner, item bulkItem, document []byte) []byte {
	dst = append(dst, '{')
	for _, m := range []struct {
		key   string
		value []byte
	}{{"_index", item.index}, {"_id", item.id}} {
		if _, own := s.Member(document, m.key); m.value != nil && !own {
			dst = append(dst, `"`+m.key+`":"`...)
			dst = append(append(dst, m.value...), '"', ',')
		}
	}
	rest := bytes.TrimLeft(document[bytes.IndexByte(document, '{')+1:], " \t\r\n")
	if rest[0] == '}' && dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, rest...)
}

// appendBulk appends the response to a _bulk request.
func appendBulk(dst []byte, items []bulkItem) []byte {
	failed := false
	for i := range items {
		failed = failed || items[i].problem != ""
	}
	dst = append(dst, `{"took":0,"errors":`...)
	dst = append(strconv.AppendBool(dst, failed), `,"items":[`...)
	for i := range items {
		item := &items[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"`...), item.action...), `":{"_index":`...)
		dst = append(append(append(dst, '"'), item.index...), '"')
		dst = append(append(append(dst, `,"_id":"`...), item.id...), '"')
		if item.problem == "" {
			dst = append(dst, `,"result":"created","status":201}}`...)
			continue
		}
		dst = append(dst, `,"status":400,"error":{"type":"illegal_argument_exception","reason":`...)
		dst = append(ndjson.AppendString(dst, item.problem), `}}}`...)
	}
	return append(dst, "]}\n"...)
}
