package stream

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// PerSecond is a rate in a config: "100/s", "6000/m", "50000/h". It is never negative.
type PerSecond float64

// UnmarshalText reads a rate.
func (p *PerSecond) UnmarshalText(text []byte) error {
	amount, seconds, err := cutRate(string(text))
	if err != nil {
		return err
	}
	n, err := strconv.ParseFloat(amount, 64)
	if err != nil || !(n >= 0 && n <= 1e12) {
		return errRate(text)
	}
	*p = PerSecond(n / seconds)
	return nil
}

// MarshalText returns the rate per second.
func (p PerSecond) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(p), 'g', -1, 64) + "/s"), nil
}

// BytesPerSecond is a rate of bytes in a config: "10MB/s", "600MiB/m".
type BytesPerSecond float64

// UnmarshalText reads a rate.
func (b *BytesPerSecond) UnmarshalText(text []byte) error {
	amount, seconds, err := cutRate(string(text))
	if err != nil {
		return err
	}
	if n, err := ParseSize(amount); err == nil {
		*b = BytesPerSecond(float64(n) / seconds)
		return nil
	}
	// Unlike a size, a rate may have a fraction of a byte: MarshalText writes 60B/h as
	// 0.016666666666666666B/s.
	number, inBytes := strings.CutSuffix(amount, "B")
	n, err := strconv.ParseFloat(number, 64)
	if !inBytes || err != nil || !(n >= 0 && n < math.MaxInt64) {
		return errRate(text)
	}
	*b = BytesPerSecond(n / seconds)
	return nil
}

// MarshalText returns the rate per second.
func (b BytesPerSecond) MarshalText() ([]byte, error) {
	if whole := Size(b); BytesPerSecond(whole) == b {
		return []byte(whole.String() + "/s"), nil
	}
	return []byte(strconv.FormatFloat(float64(b), 'g', -1, 64) + "B/s"), nil
}

// cutRate splits a rate into its amount and the seconds of its unit. Example: 6000/m gives 6000 and
// 60.
func cutRate(text string) (amount string, seconds float64, err error) {
	amount, unit, _ := strings.Cut(text, "/")
	switch unit {
	case "s":
		seconds = 1
	case "m":
		seconds = time.Minute.Seconds()
	case "h":
		seconds = time.Hour.Seconds()
	default:
		return "", 0, errRate([]byte(text))
	}
	return strings.TrimSpace(amount), seconds, nil
}

func errRate(text []byte) error {
	return fmt.Errorf(
		"%q is not a rate; write 100/s, 6000/m or 50000/h, and for bytes 10MB/s", text)
}
