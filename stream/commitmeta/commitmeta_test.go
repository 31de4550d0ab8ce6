package commitmeta_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

func markWith(watermark int64, ends ...int64) stream.Mark {
	m := stream.Mark{Part: stream.Partition{ID: "c/t/0"},
		Watermark: stream.Position{Num: watermark}}
	for i := 0; i < len(ends); i += 2 {
		m.Above = append(m.Above, stream.Range{From: stream.Position{Num: ends[i]},
			To: stream.Position{Num: ends[i+1]}})
	}
	return m
}

// TestGolden checks the format against docs/formats/commit-metadata.md.
func TestGolden(t *testing.T) {
	m := markWith(100, 120, 180, 200, 500)
	const want = "penstock1.8Qkd8hQ8FKwC"
	text, stored := commitmeta.Encode(m, commitmeta.DefaultLimit)
	if text != want || !slices.Equal(stored, m.Above) {
		t.Errorf("Encode = %q, %v, want %q", text, stored, want)
	}
	above, own := commitmeta.Decode(want, "c/t/0", 100)
	if !own || !slices.Equal(above, m.Above) {
		t.Errorf("Decode = %v, %v", above, own)
	}
}

// TestNotOwn checks that Decode rejects text that was not made for this partition and offset.
func TestNotOwn(t *testing.T) {
	text, _ := commitmeta.Encode(markWith(100, 120, 180), commitmeta.DefaultLimit)
	for _, c := range []struct {
		name, text, part string
		offset           int64
	}{
		{"no text", "", "c/t/0", 100},
		{"another offset", text, "c/t/0", 101},
		{"another partition", text, "c/t/1", 100},
		{"cut off", text[:len(text)-2], "c/t/0", 100},
		{"longer", text + "AA", "c/t/0", 100},
		{"other software", "consumer-7", "c/t/0", 100},
		{"no base64", "penstock1.!!", "c/t/0", 100},
		{"nothing behind the magic", "penstock1.", "c/t/0", 100},
	} {
		if above, own := commitmeta.Decode(c.text, c.part, c.offset); own || above != nil {
			t.Errorf("%s: %v, %v", c.name, above, own)
		}
	}
}

// TestRangesThatDoNotFit checks that the text holds the lowest ranges and stays within its limit,
// and that Encode returns exactly the ranges in the text.
func TestRangesThatDoNotFit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		m := markWith(rnd.Int64N(1 << 40))
		at := m.Watermark.Num
		for range rnd.IntN(3000) {
			from := at + 1 + rnd.Int64N(1<<rnd.IntN(20))
			at = from + 1 + rnd.Int64N(1<<rnd.IntN(20))
			m.Above = append(m.Above, stream.Range{From: stream.Position{Num: from},
				To: stream.Position{Num: at}})
		}
		limit := rnd.IntN(5000)
		text, stored := commitmeta.Encode(m, limit)
		if len(text) > max(limit, commitmeta.MinLimit) ||
			!slices.Equal(stored, m.Above[:len(stored)]) {
			t.Fatalf("%d bytes at a limit of %d; %d of %d ranges", len(text), limit, len(stored),
				len(m.Above))
		}
		if len(stored) < len(m.Above) && len(text) < limit-30 {
			t.Fatalf("%d of %d ranges in %d of %d bytes", len(stored), len(m.Above),
				len(text), limit)
		}
		above, own := commitmeta.Decode(text, m.Part.ID, m.Watermark.Num)
		if !own || !slices.Equal(above, stored) {
			t.Fatalf("Decode = %d ranges, %v, want %d", len(above), own, len(stored))
		}
	}
}

// FuzzDecode checks that accepted ranges are ascending, disjoint and above the offset, and that
// they encode to the same text.
func FuzzDecode(f *testing.F) {
	text, _ := commitmeta.Encode(markWith(100, 120, 180, 200, 500), commitmeta.DefaultLimit)
	f.Add(text, int64(100))
	f.Add("penstock1.AAAA", int64(-1))
	f.Fuzz(func(t *testing.T, text string, offset int64) {
		above, own := commitmeta.Decode(text, "c/t/0", offset)
		if !own {
			return
		}
		m := markWith(offset)
		m.Above = above
		at := offset
		for _, r := range above {
			if r.From.Num < at || r.To.Num <= r.From.Num {
				t.Fatalf("ranges %v above %d", above, offset)
			}
			at = r.To.Num
		}
		if again, _ := commitmeta.Encode(m, len(text)); again != text {
			t.Fatalf("%q becomes %q", text, again)
		}
	})
}

func ExampleDecode() {
	m := stream.Mark{Part: stream.Partition{ID: "orders-0"}, Watermark: stream.Position{Num: 40}}
	m.Above = []stream.Range{{From: stream.Position{Num: 45}, To: stream.Position{Num: 50}}}
	text, _ := commitmeta.Encode(m, commitmeta.DefaultLimit)
	fmt.Println(commitmeta.Decode(text, "orders-0", 40))
	fmt.Println(commitmeta.Decode(text, "orders-0", 30)) // somebody has set the offset back
	// Output:
	// [(45, 50]] true
	// [] false
}

// TestInABubble checks that Encode and Decode do not depend on the clock: they work the same in the
// virtual time of a testing/synctest bubble.
func TestInABubble(t *testing.T) {
	m := markWith(100, 120, 180)
	outside, _ := commitmeta.Encode(m, commitmeta.DefaultLimit)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		if text, _ := commitmeta.Encode(m, commitmeta.DefaultLimit); text != outside {
			t.Errorf("Encode = %q in a bubble, %q outside", text, outside)
		}
		if above, own := commitmeta.Decode(outside, "c/t/0", 100); !own || len(above) != 1 {
			t.Errorf("Decode = %v, %v", above, own)
		}
	})
}
