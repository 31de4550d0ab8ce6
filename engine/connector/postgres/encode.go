package postgres

import (
	"encoding/binary"
	"slices"
	"strconv"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Encode implements sqlspan.Writer. It appends the kept records of b (neither dropped nor
// dead-lettered) in the format of COPY: in the binary format if the columns allow it, otherwise in
// the text format (https://www.postgresql.org/docs/current/sql-copy.html), which supports every
// type. It returns the records that cannot be rows of the table. Call b.Split first, which fills
// b.Records. In mode upsert, a row begins with the number of the record in the batch.
func (w *writer) Encode(dst []byte, b *stream.Batch) ([]byte, []sqltable.Refusal) {
	var refusals []sqltable.Refusal
	t := w.sink.Shape.For(b)
	binaryForm, numbered := isBinary(t.Columns), w.sink.o.Mode == sqltable.Upsert
	if binaryForm {
		dst = slices.Grow(dst, binarySize(t, b))
		dst = append(dst, binaryHeader...)
	}
	w.rows.Over(t, b)
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		number := -1
		if numbered {
			number = i
		}
		if binaryForm {
			fields := b.FieldsOf(i)
			if places, most := w.rows.Places(fields); places != nil {
				if n := most + roomFor(places); cap(dst)-len(dst) < n {
					dst = slices.Grow(dst, n)
				}
				if n := putPlaced(dst[len(dst):cap(dst)], places, fields, b.Data, number); n > 0 {
					dst = dst[:len(dst)+n]
					continue
				}
			}
		}
		if reason := w.rows.Row(i); reason != "" {
			refusals = append(refusals, w.rows.Refusal(i, reason))
			continue
		}
		if binaryForm {
			dst = w.appendBinaryRow(dst, t.Columns, number)
		} else {
			dst = w.appendTextRow(dst, number)
		}
	}
	if binaryForm {
		dst = append(dst, binaryTrailer...)
	}
	return dst, refusals
}

// binarySize estimates the encoded size of b, so that the buffer is allocated once.
func binarySize(t *sqltable.Table, b *stream.Batch) int {
	row := 2 + 8
	for i := range t.Columns {
		switch row += 4; t.Columns[i].Type {
		case sqltable.Integer, sqltable.Float:
			row += 8
		}
	}
	return len(binaryHeader) + len(binaryTrailer) + int(b.RawBytes()) + len(b.Records)*row
}

func (w *writer) appendBinaryRow(dst []byte, columns []sqltable.Column, number int) []byte {
	fields := len(columns)
	if number >= 0 {
		fields++
	}
	dst = append(dst, byte(fields>>8), byte(fields))
	if number >= 0 {
		dst = binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 8), uint64(number))
	}
	for c, cell := range w.rows.Cells {
		dst = appendBinary(dst, &columns[c], cell)
	}
	return dst
}

func (w *writer) appendTextRow(dst []byte, number int) []byte {
	if number >= 0 {
		dst = append(strconv.AppendInt(dst, int64(number), 10), '\t')
	}
	for c, cell := range w.rows.Cells {
		if c > 0 {
			dst = append(dst, '\t')
		}
		if cell == nil {
			dst = append(dst, '\\', 'N')
		} else {
			dst = appendEscaped(dst, cell)
		}
	}
	return append(dst, '\n')
}

// escapes maps each byte with a special meaning in the text format to the letter of its escape
// sequence.
var escapes = [256]byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't', '\v': 'v',
	'\\': '\\'}

func appendEscaped(dst, cell []byte) []byte {
	start := 0
	for i, c := range cell {
		if c != '\\' && (c > '\r' || escapes[c] == 0) {
			continue
		}
		dst = append(dst, cell[start:i]...)
		dst = append(dst, '\\', escapes[c])
		start = i + 1
	}
	return append(dst, cell[start:]...)
}

// revocableReader is a reader over memory. The driver may continue to read in its own goroutine
// after it has returned an error. So the reader can be revoked: after that, it no longer reads the
// memory, which can be reused.
type revocableReader struct {
	mu   sync.Mutex // guards rest
	rest []byte
	err  error
}

// Read implements io.Reader.
func (l *revocableReader) Read(p []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) == 0 {
		return 0, l.err
	}
	n = copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// revoke ends access to the memory. Read returns an error from now on.
func (l *revocableReader) revoke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest, l.err = nil, errRevoked
}
