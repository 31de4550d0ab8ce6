package unpack_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-io/penstock/engine/kit/unpack"
)

// gz compresses each text to a member.
func gz(t testing.TB, texts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, s := range texts {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// skippable is a skippable frame of zstd.
var skippable = []byte{0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'}

// zs compresses each text to a frame, with skippable frames between them.
func zs(t testing.TB, texts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for i, s := range texts {
		w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if i+1 < len(texts) {
			b.Write(skippable)
		}
	}
	return b.Bytes()
}

// text is n bytes that compress a little.
func text(n int, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 2))
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(strings.Repeat(string(rune('a'+rng.IntN(26))), 1+rng.IntN(9)))
	}
	return b.String()[:n]
}

func goes(t testing.TB) func(string, func(context.Context) error) {
	return func(_ string, run func(context.Context) error) {
		go func() {
			if err := run(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
}

func packed(t testing.TB, kind unpack.Kind, texts ...string) []byte {
	if kind == unpack.Gzip {
		return gz(t, texts...)
	}
	return zs(t, texts...)
}

var kinds = []unpack.Kind{unpack.Gzip, unpack.Zstd}

// TestReadAt checks that reads of any ranges in any order return the original data, also with a
// small window and a goroutine that decompresses ahead.
func TestReadAt(t *testing.T) {
	want := text(700_000, 1) + text(1_200_000, 3) + text(10, 4) + text(900_000, 5)
	for _, kind := range kinds {
		for _, ahead := range []bool{false, true} {
			data := packed(t, kind, want[:700_000], want[700_000:1_900_000],
				want[1_900_000:1_900_010], "", want[1_900_010:])
			var o unpack.Options
			if ahead {
				o.Go = goes(t)
			}
			f := unpack.New(kind, o)
			if err := f.Attach(bytes.NewReader(data), int64(len(data))); err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(7, uint64(kind)))
			for range 80 {
				n, off := rng.IntN(300_000), rng.IntN(len(want))
				if rng.IntN(10) > 0 { // mostly forwards, near where it stands
					known, _ := f.Known()
					off = max(0, min(int(known)-rng.IntN(5000), len(want)-1))
				}
				got := make([]byte, n)
				k, err := f.ReadAt(got, int64(off))
				rest := want[off:]
				if string(got[:k]) != rest[:min(n, len(rest))] || (err != nil) != (n > len(rest)) {
					t.Fatalf("%v: read %d of %d at %d: %v", kind, k, n, off, err)
				}
			}
			if size, end := f.Size(1 << 40); size != int64(len(want)) || !end || f.Err() != nil {
				t.Errorf("%v: %d bytes, %v, %v", kind, size, end, f.Err())
			}
			f.Close()
			f.Close()
		}
	}
}

// TestTruncated reads every prefix of a compressed file. Each must give a prefix of the file's
// content, and a TruncatedError, unless it ends at the end of a member. When the file has grown,
// reading must continue.
func TestTruncated(t *testing.T) {
	for _, kind := range kinds {
		texts := []string{text(300, 1), text(500, 2), text(2000, 3)}
		want := strings.Join(texts, "")
		data := packed(t, kind, texts...)
		ends := map[int]bool{0: true}
		for i := range texts {
			ends[len(packed(t, kind, texts[:i+1]...))] = true
		}
		f := unpack.New(kind, unpack.Options{})
		for n := 2; n <= len(data); n++ {
			if err := f.Attach(bytes.NewReader(data[:n]), int64(n)); err != nil {
				t.Fatal(err)
			}
			size, end := f.Size(1 << 40)
			got := make([]byte, size)
			if k, err := f.ReadAt(got, 0); k != len(got) || err != nil || !end ||
				!strings.HasPrefix(want, string(got)) {
				t.Fatalf("%v: %d bytes of %d: %d, %v, %v", kind, n, len(data), size, end, err)
			}
			_, cut := errors.AsType[*unpack.TruncatedError](f.Err())
			whole := ends[n] || kind == unpack.Zstd && n > len(skippable) && ends[n-len(skippable)]
			if cut == whole || f.Err() != nil && !cut {
				t.Fatalf("%v: %d bytes of %d give %d: %v", kind, n, len(data), size, f.Err())
			}
		}
		if size, _ := f.Size(1 << 40); size != int64(len(want)) {
			t.Errorf("%v: %d bytes, want %d", kind, size, len(want))
		}
	}
}

// TestDamaged checks that the data before the damage can be read, and that the error names its
// position. After the file is replaced by a sound copy, reading must continue.
func TestDamaged(t *testing.T) {
	for _, kind := range kinds {
		want := text(3_000_000, 1)
		sound := packed(t, kind, want[:1_000_000], want[1_000_000:])
		bad := bytes.Clone(sound)
		for i := range 100 {
			bad[len(bad)*2/3+i] ^= byte(i*37 + 1)
		}
		f := unpack.New(kind, unpack.Options{Go: goes(t)})
		if err := f.Attach(bytes.NewReader(bad), int64(len(bad))); err != nil {
			t.Fatal(err)
		}
		size, end := f.Size(1 << 40)
		_, damaged := errors.AsType[*unpack.DamagedError](f.Err())
		if size < 1_000_000 || !end || !damaged {
			t.Fatalf("%v: %d bytes, %v, %v", kind, size, end, f.Err())
		}
		if err := f.Attach(bytes.NewReader(sound), int64(len(sound))); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != want {
			t.Fatalf("%v: the sound copy is not what it should be: %v", kind, err)
		}
		f.Close()
	}
	f := unpack.New(unpack.Gzip, unpack.Options{})
	data := append(gz(t, "text"), "garbage"...)
	_ = f.Attach(bytes.NewReader(data), int64(len(data)))
	if size, _ := f.Size(100); size != 4 || f.Err() == nil ||
		!strings.Contains(f.Err().Error(), "the following bytes are not gzip") {
		t.Errorf("garbage behind gzip: %d bytes, %v", size, f.Err())
	}
	data = append(gz(t, "text"), make([]byte, 1000)...)
	_ = f.Attach(bytes.NewReader(data), int64(len(data)))
	if size, _ := f.Size(100); size != 4 || f.Err() != nil {
		t.Errorf("zeros behind gzip: %d bytes, %v", size, f.Err())
	}
}

// TestAttach checks that a rewritten file is read from its start, and that reading continues after
// data was appended.
func TestAttach(t *testing.T) {
	for _, kind := range kinds {
		one := packed(t, kind, "first\n")
		f := unpack.New(kind, unpack.Options{})
		read := func(data []byte) string {
			if err := f.Attach(bytes.NewReader(data), int64(len(data))); err != nil {
				t.Fatal(err)
			}
			size, _ := f.Size(1 << 20)
			got := make([]byte, size)
			if _, err := f.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			return string(got)
		}
		for _, c := range []struct {
			data []byte
			want string
		}{
			{one, "first\n"},
			{append(bytes.Clone(one), packed(t, kind, "second\n")...), "first\nsecond\n"},
			{packed(t, kind, "other and longer text, to be sure\n", "more"), "other and longer " +
				"text, to be sure\nmore"}, {one, "first\n"},
		} {
			if got := read(c.data); got != c.want {
				t.Errorf("%v: %q, want %q", kind, got, c.want)
			}
			f.Rest()
			if got := read(c.data); got != c.want {
				t.Errorf("%v, after rest: %q, want %q", kind, got, c.want)
			}
			f.Close()
		}
	}
}

// TestExpansion checks that MaxExpansion stops the decompression of a bomb.
func TestExpansion(t *testing.T) {
	for _, kind := range kinds {
		var b bytes.Buffer
		zeros := make([]byte, 1<<20)
		w := io.WriteCloser(gzip.NewWriter(&b))
		if kind == unpack.Zstd {
			w, _ = zstd.NewWriter(&b)
		}
		for range 80 {
			if _, err := w.Write(zeros); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f := unpack.New(kind, unpack.Options{MaxExpansion: 200})
		_ = f.Attach(bytes.NewReader(b.Bytes()), int64(b.Len()))
		size, _ := f.Size(1 << 40)
		if _, ok := errors.AsType[*unpack.ExpansionError](f.Err()); !ok || size > 68<<20 {
			t.Errorf("%v: %d bytes, %v", kind, size, f.Err())
		}
		f.Close()
	}
}

// TestGoroutineEnds checks that reading continues after the context of the goroutine that
// decompresses ahead has ended.
func TestGoroutineEnds(t *testing.T) {
	want := text(4_000_000, 1)
	data := gz(t, want)
	ctx, cancel := context.WithCancel(t.Context())
	f := unpack.New(unpack.Gzip,
		unpack.Options{Go: func(_ string, run func(context.Context) error) {
			go func() { _ = run(ctx) }()
		}})
	_ = f.Attach(bytes.NewReader(data), int64(len(data)))
	got := make([]byte, len(want))
	for at := 0; at < len(want); at += 100_000 {
		if at == 1_500_000 {
			cancel()
		}
		if _, err := f.ReadAt(got[at:at+100_000], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if string(got) != want {
		t.Error("what was read is not what was compressed")
	}
	f.Close()
	cancel()
}

func TestDetect(t *testing.T) {
	for head, want := range map[string]unpack.Kind{
		"": unpack.None, "\x1f": unpack.None, "\x1f\x8b": unpack.Gzip,
		"\x1f\x8b\x08\x00": unpack.Gzip, "\x1f\x8b\x07": unpack.None,
		"\x28\xb5": unpack.Zstd, "\x28\xb5\x2f\xfd": unpack.Zstd, "\x28\xb5\x2f\xfe": unpack.None,
		string(skippable): unpack.Zstd,
		"line":            unpack.None,
	} {
		if got := unpack.Detect([]byte(head)); got != want {
			t.Errorf("%q: %v, want %v", head, got, want)
		}
	}
}

// FuzzFile reads arbitrary bytes in pieces of any size. The result must equal that of a single read
// with the reader of the compression library, and nothing may panic.
func FuzzFile(f *testing.F) {
	for _, kind := range kinds {
		f.Add(uint8(kind), packed(f, kind, text(1000, 1), text(2000, 2)), uint16(100))
		f.Add(uint8(kind), packed(f, kind, text(5000, 1))[:300], uint16(1))
		f.Add(uint8(kind), append(packed(f, kind, "x"), 0, 0, 0), uint16(1))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte, step uint16) {
		kind := kinds[int(which)%2]
		step = max(step, uint16(min(len(data)/20+1, 1<<15)))
		v := unpack.New(kind, unpack.Options{})
		defer v.Close()
		for n := min(len(data), int(step)); ; n = min(len(data), n+int(step)+1) { // as it grows
			if err := v.Attach(bytes.NewReader(data[:n]), int64(n)); err != nil {
				t.Fatal(err)
			}
			v.Size(int64(step))
			if n == len(data) {
				break
			}
		}
		size, _ := v.Size(1 << 22)
		got := make([]byte, size)
		if n, err := v.ReadAt(got, 0); int64(n) != size {
			t.Fatalf("%d of %d bytes: %v", n, size, err)
		}
		want, err := oracle(kind, data)
		if v.Err() == nil && err != nil && kind == unpack.Zstd || v.Err() == nil &&
			!bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d, %v", len(got), len(want), err)
		}
		if n := min(len(got), len(want)); !bytes.Equal(got[:n], want[:n]) {
			t.Fatal("other bytes came out")
		}
	})
}

func oracle(kind unpack.Kind, data []byte) ([]byte, error) {
	if kind == unpack.Zstd {
		r, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(io.LimitReader(r, 1<<22))
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, 1<<22))
}
