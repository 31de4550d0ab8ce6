package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"
)

// Object is a JSON object with fields that depend on the policy. It remembers which fields were
// read, so that a test fails if it ignores a setting.
type Object struct {
	fields map[string]json.RawMessage
	read   map[string]bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(text []byte) error {
	o.read = map[string]bool{}
	return json.Unmarshal(text, &o.fields)
}

// Has reports whether key is present and not null. It records that the test has read the key.
func (o Object) Has(key string) bool {
	raw, ok := o.fields[key]
	if ok {
		o.read[key] = true
	}
	return ok && !bytes.Equal(raw, []byte("null"))
}

// Keys returns all keys, in order.
func (o Object) Keys() []string { return slices.Sorted(maps.Keys(o.fields)) }

// Unread returns the keys that the test has not read, in order.
func (o Object) Unread() []string {
	return slices.DeleteFunc(o.Keys(), func(key string) bool { return o.read[key] })
}

// Skip records keys as read. A test calls it for settings that it does not need.
func (o Object) Skip(keys ...string) {
	for _, key := range keys {
		o.Has(key)
	}
}

// Get decodes the field key of o into a T. If the field is absent or null, Get returns the zero T.
func Get[T any](t testing.TB, o Object, key string) (v T) {
	t.Helper()
	if !o.Has(key) {
		return v
	}
	if err := json.Unmarshal(o.fields[key], &v); err != nil {
		t.Fatalf("field %q: %v", key, err)
	}
	return v
}

// Duration returns the field key, an integer of nanoseconds, limited to the range of a Duration.
func (o Object) Duration(t testing.TB, key string) time.Duration {
	t.Helper()
	return Get[Nanos](t, o, key).Duration()
}

// Durations returns the field key, a list of integers of nanoseconds, each
// limited to the range of a Duration.
func (o Object) Durations(t testing.TB, key string) []time.Duration {
	t.Helper()
	var list []time.Duration
	for _, n := range Get[[]Nanos](t, o, key) {
		list = append(list, n.Duration())
	}
	return list
}

// Int returns the field key, a whole number.
func (o Object) Int(t testing.TB, key string) int {
	t.Helper()
	f := Get[json.Number](t, o, key)
	if f == "" {
		return 0
	}
	var n Nanos
	if err := n.UnmarshalJSON([]byte(f)); err != nil {
		t.Fatalf("field %q: %v", key, err)
	}
	return int(n)
}

// Float returns the field key, which is a number or one of the strings "NaN", "+Inf" and "-Inf".
func (o Object) Float(t testing.TB, key string) float64 {
	t.Helper()
	return float64(Get[Float](t, o, key))
}

// Bool returns the field key, true or false.
func (o Object) Bool(t testing.TB, key string) bool { t.Helper(); return Get[bool](t, o, key) }

// Text returns the field key, a string. It returns "" if the field is absent or null.
func (o Object) Text(t testing.TB, key string) string { t.Helper(); return Get[string](t, o, key) }

// Object returns the field key, an object.
func (o Object) Object(t testing.TB, key string) Object {
	t.Helper()
	return Get[Object](t, o, key)
}

// Objects returns the field key, a list of objects.
func (o Object) Objects(t testing.TB, key string) []Object {
	t.Helper()
	return Get[[]Object](t, o, key)
}

// String returns the object as JSON, for messages.
func (o Object) String() string {
	text, err := json.Marshal(o.fields)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}

// Number returns the call's result as a number.
func (c Call) Number(t testing.TB) (f float64) {
	t.Helper()
	var x Float
	if err := json.Unmarshal(c.Result, &x); err != nil {
		t.Fatalf("result of %s: %v", c.Call, err)
	}
	return float64(x)
}

// Text returns the call's result as a string.
func (c Call) Text(t testing.TB) (s string) {
	t.Helper()
	if err := json.Unmarshal(c.Result, &s); err != nil {
		t.Fatalf("result of %s: %v", c.Call, err)
	}
	return s
}

// Big returns the field key, an integer of any size. It returns 0 if the field is absent.
func (o Object) Big(t testing.TB, key string) *big.Int {
	t.Helper()
	text := Get[json.Number](t, o, key)
	i, ok := new(big.Int).SetString(string(text), 10)
	if text != "" && !ok {
		t.Fatalf("field %q: %s is no integer", key, text)
	}
	if i == nil {
		i = new(big.Int)
	}
	return i
}
