package stream

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes in a config: "256KiB", "1MB", "4096".
type Size int64

// sizeUnits are the units, the largest first.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// ParseSize parses a size: a non-negative number with an optional unit. The units are B, kB, MB,
// GB, TB, KiB, MiB, GiB and TiB. With a unit other than B, the number may have a fraction.
func ParseSize(s string) (Size, error) {
	text, unit := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		if n > math.MaxInt64/unit {
			return 0, fmt.Errorf("%q is more than 8 EiB", s)
		}
		return Size(n * unit), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || math.IsNaN(f) || unit == 1 {
		return 0, fmt.Errorf("%q is not a size; write a number with a unit, such as 256KiB or 1MB",
			s)
	}
	if f *= float64(unit); f >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more than 8 EiB", s)
	}
	return Size(f), nil
}

// String returns the exact form with the largest unit of which s is a multiple. Example: "2GB" for
// 2000000000.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if n := int64(s); n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// UnmarshalText parses a size from a config.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// MarshalText returns the form that UnmarshalText parses.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
