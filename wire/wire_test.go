package wire_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/penstock-io/penstock/wire"
)

func entry() []byte {
	b := binary.AppendUvarint(nil, 300)
	b = binary.AppendVarint(b, math.MinInt64)
	b = append(b, 7)
	b = binary.LittleEndian.AppendUint64(b, uint64(1<<63+5))
	return append(binary.AppendUvarint(b, 5), "hello"...)
}

type values struct {
	u    uint64
	v    int64
	b    byte
	n    int64
	text string
}

func read(r *wire.Reader) values {
	return values{r.Uvarint(), r.Varint(), r.Byte(), r.Int64(), r.Text()}
}

// TestReader checks that an entry is read as written. An entry that is cut off anywhere or has an
// extra byte is refused.
func TestReader(t *testing.T) {
	whole := entry()
	r := wire.Reader{Rest: whole}
	want := values{300, math.MinInt64, 7, math.MinInt64 + 5, "hello"}
	if got := read(&r); got != want || !r.Done() {
		t.Fatalf("%+v, done %v; want %+v", got, r.Done(), want)
	}
	for n := range whole {
		r := wire.Reader{Rest: whole[:n]}
		read(&r)
		if !r.Bad || r.Done() || len(r.Rest) > 0 || r.Uvarint() != 0 || r.Byte() != 0 {
			t.Errorf("the first %d bytes are taken for whole", n)
		}
	}
	r = wire.Reader{Rest: append(whole, 0)}
	if read(&r); r.Done() || r.Bad {
		t.Error("a byte too many is not seen")
	}
	if r.Fail(); r.Done() || r.Take(0) == nil && !r.Bad {
		t.Error("Fail has no effect")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(entry())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := wire.Reader{Rest: b}
		if got := read(&r); r.Bad && (len(r.Rest) > 0 || r.Done()) {
			t.Errorf("%+v: bad, and %d bytes are left", got, len(r.Rest))
		}
	})
}
