package messages_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestMetaSharesValues checks that equal values of consecutive records are stored once, and that
// the values of another batch are not used.
func TestMetaSharesValues(t *testing.T) {
	a := messages.NewMetaAdder(messages.Meta{
		{Name: "topic", Type: stream.TextType}, {Name: ""},
		{Name: "offset", Type: stream.IntegerType},
	})
	for _, topic := range []string{"orders", "events"} {
		b := streamtest.Lines("a", "b", "c")
		b.Split()
		size := len(b.Data)
		for i := range b.Records {
			a.Add(b, i, func(dst []byte, k int) ([]byte, stream.Kind) {
				if k == 0 {
					return append(dst, topic...), stream.Text
				}
				return append(dst, byte('1'+i)), stream.Number
			})
		}
		if got := len(b.Data) - size; got != len(topic)+3 {
			t.Errorf("the values take %d bytes, want %d", got, len(topic)+3)
		}
		for i := range b.Records {
			fields := b.FieldsOf(i)
			if len(fields) != 3 || string(b.Value(fields[1])) != topic ||
				string(b.Value(fields[2])) != string(rune('1'+i)) ||
				fields[2].Kind != stream.Number {
				t.Errorf("record %d has the fields %v", i, fields)
			}
		}
	}
}
