package stream_test

import (
	"testing"

	"github.com/penstock-io/penstock/stream"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want stream.Size
		form string // String of it
	}{
		{"0", 0, "0B"}, {"4096", 4096, "4KiB"}, {"256KiB", 256 << 10, "256KiB"},
		{"1MB", 1e6, "1MB"}, {"1.5 KiB", 1536, "1536B"},
		{"2GB", 2e9, "2GB"}, {"64MB", 64e6, "64MB"}, {"5TB", 5e12, "5TB"},
		{"1000KiB", 1024e3, "1000KiB"},
		{"1024MB", 1024e6, "1024MB"}, {" 3B ", 3, "3B"}, {"1kB", 1000, "1kB"},
		{"2TiB", 2 << 40, "2TiB"},
	} {
		got, err := stream.ParseSize(c.text)
		if err != nil || got != c.want || got.String() != c.form {
			t.Errorf("ParseSize(%q) = %v (%d), %v; want %v", c.text, got, got, err, c.form)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5", "1.5B", "KiB", "9e30TiB", "NaNKiB",
		"8388608TiB", "1 2", "-1KiB"} {
		if got, err := stream.ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %v, want an error", text, got)
		}
	}
}

// TestBytesPerSecond checks that rates are marshaled in a form that can be read again.
func TestBytesPerSecond(t *testing.T) {
	for _, c := range []struct{ text, form string }{
		{"10MB/s", "10MB/s"}, {"60KiB/m", "1KiB/s"}, {"1.5KiB/s", "1536B/s"}, {"0B/s", "0B/s"},
		{"1B/h", "0.0002777777777777778B/s"}, {"100kB/m", "1666.6666666666667B/s"},
	} {
		var rate, again stream.BytesPerSecond
		if err := rate.UnmarshalText([]byte(c.text)); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		form, err := rate.MarshalText()
		if err != nil || string(form) != c.form {
			t.Errorf("%s is marshaled as %s, %v; want %s", c.text, form, err, c.form)
		}
		if err := again.UnmarshalText(form); err != nil || again != rate {
			t.Errorf("%s is marshaled as %s, which is read as %v, %v", c.text, form, again, err)
		}
	}
	for _, text := range []string{"-0.5B/s", "NaNB/s", "InfB/s", "0.5/s", "1e19B/s"} {
		var rate stream.BytesPerSecond
		if rate.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%s is read as %v, want an error", text, rate)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("256KiB")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := stream.ParseSize(text)
		if err != nil {
			return
		}
		if again, err := stream.ParseSize(s.String()); err != nil || again != s {
			t.Errorf("%q is %d, its form %q reads as %d, %v", text, s, s, again, err)
		}
	})
}
