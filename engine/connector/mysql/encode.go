//penstock:pure

package mysql

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// statementBytes is the length after which an INSERT ends and the next one begins. It is half of
// the smallest default of max_allowed_packet (1 MiB, on old servers), and large enough for high
// throughput.
const statementBytes = 512 << 10

// Encode implements sqlspan.Writer. It appends the kept records of b (neither dropped nor
// dead-lettered) as INSERT statements, each preceded by its length. It returns the records that
// cannot be rows of the table. Call b.Split first, which fills b.Records.
func (w *writer) Encode(dst []byte, b *stream.Batch) ([]byte, []sqltable.Refusal) {
	s := w.sink
	var refusals []sqltable.Refusal
	t := s.Shape.For(b)
	head, tail := insertSQL(s.name, t.Columns, s.o.Key, s.otherIndex.Load())
	w.rows.Over(t, b)
	start := -1 // of the current statement
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		if reason := w.rows.Row(i); reason != "" {
			refusals = append(refusals, w.rows.Refusal(i, reason))
			continue
		}
		if start < 0 {
			start = len(dst)
			dst = append(append(dst, 0, 0, 0, 0), head...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, '(')
		for c, cell := range w.rows.Cells {
			if c > 0 {
				dst = append(dst, ',')
			}
			dst = appendLiteral(dst, &t.Columns[c], cell)
		}
		if dst = append(dst, ')'); len(dst)-start > statementBytes {
			dst, start = ended(dst, start, tail), -1
		}
	}
	if start >= 0 {
		dst = ended(dst, start, tail)
	}
	return dst, refusals
}

func ended(dst []byte, start int, tail string) []byte {
	dst = append(dst, tail...)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// insertSQL returns the parts of an INSERT statement before and after its rows. With a key, the
// statement updates existing rows (upsert).
//
// If the new row has the values of an existing row in any unique index, MySQL updates the existing
// row, even if its key differs. If otherIndex is set, the statement must fail if the keys differ,
// and therefore divides by zero. Setting the key to NULL would not always fail, because some
// columns change NULL to 0 or to the current time.
func insertSQL(name sqltable.Name, columns []sqltable.Column, key []string,
	otherIndex bool) (head, tail string) {
	var set []string
	for _, k := range key {
		q := sqltable.Quote(k)
		value := "VALUES(" + q + ")" // differs from the old value if the collation ignores case
		if otherIndex {
			value = "IF(1/(" + q + "<=>" + value + ")," + value + "," + q + ")"
		}
		set = append(set, q+"="+value)
	}
	for _, c := range columns {
		if !slices.Contains(key, c.Name) {
			q := sqltable.Quote(c.Name)
			set = append(set, q+"=VALUES("+q+")")
		}
	}
	head = "INSERT INTO " + name.String() + " (" + sqltable.NamesOf(columns) + ") VALUES "
	if len(key) == 0 {
		return head, ""
	}
	return head, " ON DUPLICATE KEY UPDATE " + strings.Join(set, ",")
}

// appendLiteral appends a cell as a SQL literal, for a sql_mode in which a backslash is an ordinary
// character. Numbers with a point or an exponent are written as texts, which the server converts to
// the type of the column. If they were written as numeric literals, the server would first convert
// them to floats, or to decimals of 65 digits.
func appendLiteral(dst []byte, c *sqltable.Column, cell []byte) []byte {
	switch {
	case cell == nil:
		return append(dst, "NULL"...)
	case c.Type == sqltable.Integer, c.Type == sqltable.Bool:
		return append(dst, cell...) // checked by sqltable: digits, true or false
	case c.Type == sqltable.Bytes, c.Type == sqltable.Bits:
		if raw, ok := sqltable.HexBytes(cell); ok {
			return append(hex.AppendEncode(append(dst, "x'"...), raw), '\'')
		}
		dst = append(dst, "_binary"...)
	case c.Type == sqltable.Other && isMoment(c.Decl):
		cell = withoutUTC(cell)
	}
	dst = append(dst, '\'')
	for {
		i := bytes.IndexByte(cell, '\'')
		if i < 0 {
			return append(append(dst, cell...), '\'')
		}
		dst = append(append(dst, cell[:i]...), "''"...)
		cell = cell[i+1:]
	}
}

func isMoment(decl string) bool {
	return strings.HasPrefix(decl, "timestamp") || strings.HasPrefix(decl, "datetime")
}

// withoutUTC removes a UTC zone suffix. The session's time zone is UTC, and some servers, such as
// MySQL before 8.0.19, cannot parse the suffix.
func withoutUTC(cell []byte) []byte {
	for _, zone := range []string{"+00:00", "+00", "Z"} {
		if rest, ok := bytes.CutSuffix(cell, []byte(zone)); ok {
			return rest
		}
	}
	return cell
}
