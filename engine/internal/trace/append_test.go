package trace

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// filled returns a value of T with random fields. About a third of the fields are zero. The others
// have values that can occur in the events and commands of a control.Machine.
func filled[T any](rnd *rand.Rand) (out T) {
	fillValue(reflect.ValueOf(&out).Elem(), rnd)
	return out
}

func fillValue(v reflect.Value, rnd *rand.Rand) {
	if rnd.IntN(3) == 0 && v.Kind() != reflect.Struct {
		return // leave zero
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(v.Field(i), rnd)
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rnd.Uint64() >> 33))
	case reflect.Uint8:
		v.SetUint(uint64(rnd.IntN(250)))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(rnd.Uint64() >> 33)
	case reflect.Float64:
		v.SetFloat(rnd.NormFloat64() * 1e9)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString([]string{"plain", `qu"ote\`, "<&>", "\x01 \u2028 ü", "\xff"[:0]}[rnd.IntN(5)])
	case reflect.Slice:
		for range rnd.IntN(4) {
			x := reflect.New(v.Type().Elem()).Elem()
			fillValue(x, rnd)
			v.Set(reflect.Append(v, x))
		}
	default:
		panic("trace: BUG: the test does not know " + v.Kind().String())
	}
}

// TestEveryFieldIsWritten checks that all fields of events and commands can be read back from a
// trace. It fails if a new field of an event or command is not added to the format.
func TestEveryFieldIsWritten(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 9))
	var text []byte
	for n := range 2000 {
		e := filled[control.Event](rnd)
		do := filled[[]control.Command](rnd)
		text = appendLine(text[:0], &e, do, filled[string](rnd))
		if !json.Valid(text) || bytes.Count(text, []byte("\n")) != 1 {
			t.Fatalf("event %d: %s is no JSON line", n, text)
		}
		var l line
		if err := strict(text, &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, err := l.event()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if len(e.Keys) == 0 {
			e.Keys = nil
		}
		if !reflect.DeepEqual(got, e) {
			t.Fatalf("%s reads\n%+v, want\n%+v", text, got, e)
		}
		if want := commandsOf(nil, do); !reflect.DeepEqual(append(want[:0:0], l.Do...),
			append(want[:0:0], want...)) {
			t.Fatalf("%s reads\n%+v, want\n%+v", text, l.Do, want)
		}
		if n := reflect.TypeFor[control.Command]().NumField(); n != reflect.TypeFor[command]().NumField() {
			t.Fatalf("a command has %d fields, and the format others", n)
		}
	}
}

// TestHeaderHoldsTheWholeConfig checks that the header of a trace has every field of the config
// that affects the machine. It fails if a new field is not added to the header, because replays
// would then differ from their traces.
func TestHeaderHoldsTheWholeConfig(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var c control.Config
	v := reflect.ValueOf(&c).Elem()
	given := map[string]any{
		"Window": window.Queue{Initial: 3, Max: 9}, "Dispatch": dispatch.RoundRobin{},
		"Retry": backoff.Fixed(time.Second),
		"Probe": backoff.Fixed(time.Minute),
	}
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			if x, ok := given[name]; ok {
				f.Set(reflect.ValueOf(x))
			} else if f.Kind() == reflect.Struct {
				fill(f)
			} else if f.Kind() == reflect.Interface {
				t.Fatalf("the test knows no value for Config's %s", name)
			} else {
				for f.IsZero() {
					fillValue(f, rnd)
				}
			}
		}
	}
	fill(v)
	text, err := head(&c, &About{})
	if err != nil {
		t.Fatal(err)
	}
	var h header
	if err := strict(text, &h); err != nil {
		t.Fatal(err)
	}
	got, err := h.config()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, c) {
		t.Errorf("the header gives\n%+v, want\n%+v", got, c)
	}
}

func TestEventAllocatesNothing(t *testing.T) {
	f := &File{wake: make(chan struct{}, 1), o: Options{Max: 1 << 40}}
	e := control.Event{
		Now: time.Hour, Kind: control.Answer, ID: 1 << 40, Outcome: control.Delivered, Cost: 1.25,
		Keys:   []uint32{1, 2},
		Report: control.Report{Epoch: 3, Credit: 1 << 33, QueueWait: time.Millisecond},
	}
	do := []control.Command{{Kind: control.Settle, Seq: 9, ID: 1 << 40, Number: 1},
		{Kind: control.Start, Seq: 10, Expect: time.Hour}}
	f.buf = make([]byte, 0, MaxBehind)
	if n := testing.AllocsPerRun(1000, func() { f.Event(&e, do, "") }); n != 0 {
		t.Errorf("Event allocates %g times", n)
	}
}

func BenchmarkEvent(b *testing.B) {
	f := &File{wake: make(chan struct{}, 1)}
	e := control.Event{Now: time.Hour, Kind: control.Answer, ID: 1 << 40,
		Outcome: control.Delivered}
	do := []control.Command{{Kind: control.Settle, Seq: 9, ID: 1 << 40, Number: 1}}
	b.ReportAllocs()
	for b.Loop() {
		if len(f.buf) > flushBytes {
			f.buf = f.buf[:0]
		}
		f.Event(&e, do, "")
	}
}
