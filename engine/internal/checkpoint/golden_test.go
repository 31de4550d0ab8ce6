package checkpoint

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// golden is the file described in docs/formats/checkpoint.md. golden1 has the same contents in
// format 1. Both must remain readable.
const golden = `
50 53 54 4b 43 4b 50 54  02 00 00 00 01 00 00 00
00 00 00 00 1c 62 02 9c  03 00 00 00 db 69 3e 36
03 00 00 3c 00 00 00 d0  76 e4 75 01 00 00 0b 61
63 63 65 73 73 2f 6d 61  69 6e 01 00 00 0a 66 65
30 30 2d 31 31 2d 35 61  02 00 05 61 2e 6c 6f 67
d8 04 01 00 00 04 66 69  6c 65 00 0b 6f 75 74 2e
6c 6f 67 20 33 30 30 35  00 00 00 94 a3 65 ff 01
01 02 01 18 d8 0c 01 b0  01 c8 01 00 04 41 51 49
44 00 00 06 6f 72 64 65  72 73 0f 00 06 6f 72 64
65 72 73 04 00 04 6b 2d  31 37 01 00 03 01 39 02
02 01 32 00 04 00 00 00  1f 4d 6f ac 02 01 01 02
`

const golden1 = `
50 53 54 4b 43 4b 50 54  01 00 00 00 01 00 00 00
00 00 00 00 4c 1e 90 cf  03 00 00 00 db 69 3e 36
03 00 00 3c 00 00 00 d0  76 e4 75 01 00 00 0b 61
63 63 65 73 73 2f 6d 61  69 6e 01 00 00 0a 66 65
30 30 2d 31 31 2d 35 61  02 00 05 61 2e 6c 6f 67
d8 04 01 00 00 04 66 69  6c 65 00 0b 6f 75 74 2e
6c 6f 67 20 33 30 30 2f  00 00 00 0e 01 5c fc 01
01 02 01 08 d8 0c 01 b0  01 c8 01 00 00 06 6f 72
64 65 72 73 0f 00 06 6f  72 64 65 72 73 04 00 04
6b 2d 31 37 01 00 03 01  39 02 02 01 32 00 04 00
00 00 f4 76 14 fe 02 01  01 02
`

func goldenSteps(note string) []step {
	at := func(n int64) stream.Position { return stream.Position{Num: n} }
	mark := stream.Mark{Part: stream.Partition{ID: "fe00-11-5a", Name: "a.log"}, Watermark: at(300)}
	later := mark
	later.Watermark, later.Above, later.Metadata = at(812),
		[]stream.Range{{From: at(900), To: at(1000)}}, note
	keyed := stream.Mark{
		Part: stream.Partition{ID: "orders", Name: "orders"}, Finished: true,
		Watermark: stream.Position{Num: 2, Key: "k-17"},
		Above: []stream.Range{{From: stream.Position{Num: 2, Key: "k-19"},
			To: stream.Position{Num: 3, Key: "k-2"}}},
	}
	return []step{
		{route: "access/main", marks: []stream.Mark{mark},
			places: map[string]string{"file": "out.log 300"}},
		{route: "access/main", marks: []stream.Mark{later, keyed}},
		{route: "access/main", forget: []string{"orders"}},
	}
}

func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		format    uint16
		log, note string
	}{{1, golden1, ""}, {2, golden, "AQID"}} {
		want, err := hex.DecodeString(strings.Join(strings.Fields(tt.log), ""))
		must(t, err)
		w := writeAs(t, goldenSteps(tt.note), tt.format)
		if !bytes.Equal(w.log, want) {
			t.Errorf("the log is\n%s\nwant\n%s", hex.Dump(w.log), hex.Dump(want))
		}
		_, dir := memory(t, want)
		s, r := mustOpen(t, dir, Options{})
		if got := contents(s).String(); got != w.held[3] || r.Cut != 0 || r.Damage != "" {
			t.Errorf("the golden file of format %d holds %s (%v), want %s", tt.format, got, r,
				w.held[3])
		}
		must(t, s.Close())
	}
}
