package framelog

import (
	"bytes"
	"errors"
	"testing"
)

// file returns a file with the frames of the payloads.
func file(t *testing.T, number uint64, payloads ...string) []byte {
	t.Helper()
	b := AppendHeader(nil, "PNSKTEST", 1, number)
	for _, p := range payloads {
		frame := append(make([]byte, HeadSize), p...)
		if err := new(Summer).Seal(frame, number, int64(len(b))); err != nil {
			t.Fatal(err)
		}
		b = append(b, frame...)
	}
	return b
}

// read reads the frames of b and returns the good payloads.
func read(t *testing.T, b []byte, number uint64) (payloads []string, good int64, bad error) {
	t.Helper()
	good, bad, err := new(Summer).Read(bytes.NewReader(b[HeaderSize:]), number, int64(len(b)),
		func(payload []byte, _ int64) error {
			payloads = append(payloads, string(payload))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return payloads, good, bad
}

// TestChangedByte changes each byte of the second frame. Read must stop before this frame.
func TestChangedByte(t *testing.T) {
	whole := file(t, 7, "first", "second")
	start := len(file(t, 7, "first"))
	if got, good, bad := read(t, whole, 7); len(got) != 2 || bad != nil || good != int64(len(whole)) {
		t.Fatalf("%q, %d, %v", got, good, bad)
	}
	for i := start; i < len(whole); i++ {
		b := bytes.Clone(whole)
		b[i] ^= 1
		got, good, bad := read(t, b, 7)
		var frame *FrameError
		if len(got) != 1 || good != int64(start) || !errors.As(bad, &frame) {
			t.Errorf("byte %d: %q, %d, %v", i, got, good, bad)
		}
	}
}

// TestFrameOfAnotherFile reads a frame under another file number. The frame must be bad.
func TestFrameOfAnotherFile(t *testing.T) {
	if got, _, bad := read(t, file(t, 7, "first"), 8); len(got) != 0 || bad == nil {
		t.Errorf("%q, %v", got, bad)
	}
}

// TestHeader checks that ParseHeader returns the version and the number that AppendHeader has
// written, and an error if any byte of the header is changed.
func TestHeader(t *testing.T) {
	b := file(t, 7)
	version, number, err := ParseHeader(b, "PNSKTEST")
	if version != 1 || number != 7 || err != nil {
		t.Fatal(version, number, err)
	}
	for i := range b {
		changed := bytes.Clone(b)
		changed[i] ^= 1
		if _, _, err := ParseHeader(changed, "PNSKTEST"); err == nil {
			t.Errorf("byte %d was changed, but there is no error", i)
		}
	}
}

// TestLongBadEnd checks that a bad frame before more bytes than one write may leave counts as
// damaged. The rest is not read, so its size does not matter.
func TestLongBadEnd(t *testing.T) {
	follows, err := new(Summer).Follows(nil, 7, 1<<50, HeaderSize)
	if !follows || err != nil {
		t.Errorf("%v, %v; want damage", follows, err)
	}
}
