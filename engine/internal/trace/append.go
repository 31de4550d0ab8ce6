//penstock:pure

package trace

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/penstock-io/penstock/flow/control"
)

// appendLine appends the line of the trace for an event of flow control and the commands that the
// event has caused. The line can be decoded into the type line. appendLine does not use
// json.Marshal, because that would allocate memory for each decision of the engine. If e is a
// LaneUp event, name is the name of the lane (a worker's place in the sender), or "". For other
// events, name must be "".
func appendLine(b []byte, e *control.Event, do []control.Command, name string) []byte {
	b = append(b, `{"now":`...)
	b = strconv.AppendInt(b, int64(e.Now), 10)
	b = appendWord(append(b, `,"event":`...), kinds, int(e.Kind))
	if name != "" {
		b = appendText(append(b, `,"name":`...), name)
	}
	if e.Outcome != 0 {
		b = appendWord(append(b, `,"outcome":`...), outcomes, int(e.Outcome))
	}
	b = member(b, `,"lane":`, int64(e.Lane))
	b = appendUint(b, `,"seq":`, e.Seq)
	b = appendUint(b, `,"id":`, e.ID)
	b = appendUint(b, `,"parent":`, e.Parent)
	b = appendUint(b, `,"pieces":`, uint64(e.Pieces))
	if e.Cost != 0 {
		b = appendFloat(append(b, `,"cost":`...), e.Cost)
	}
	b = member(b, `,"bytes":`, e.Bytes)
	if len(e.Keys) > 0 {
		b = append(b, `,"keys":`...)
		for i, k := range e.Keys {
			b = strconv.AppendUint(append(b, "[,"[min(i, 1)]), uint64(k), 10)
		}
		b = append(b, ']')
	}
	b = member(b, `,"after":`, int64(e.After))
	if e.Died {
		b = append(b, `,"died":true`...)
	}
	b = appendReport(b, &e.Report)
	if e.Limits != (control.Limits{}) {
		b = strconv.AppendBool(append(b, `,"limits":{"ordered":`...), e.Limits.Ordered)
		b = member(b, `,"in_flight":`, int64(e.Limits.InFlight))
		b = member(b, `,"standby":`, int64(e.Limits.Standby))
		b = append(b, '}')
	}
	b = appendHistory(b, &e.History)
	if len(do) > 0 {
		b = append(b, `,"do":`...)
		for i := range do {
			b = appendCommand(append(b, "[,"[min(i, 1)]), &do[i])
		}
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

func appendReport(b []byte, r *control.Report) []byte {
	if *r == (control.Report{}) {
		return b
	}
	b = append(b, `,"report":{"epoch":`...)
	b = strconv.AppendUint(b, uint64(r.Epoch), 10)
	b = appendUint(b, `,"credit":`, r.Credit)
	b = appendUint(b, `,"taken":`, r.Taken)
	if r.Batches {
		b = append(b, `,"batches":true`...)
	}
	b = member(b, `,"queue_len":`, int64(r.QueueLen))
	b = member(b, `,"slots":`, int64(r.Slots))
	b = member(b, `,"queue_wait":`, int64(r.QueueWait))
	b = member(b, `,"service":`, int64(r.Service))
	b = appendUint(b, `,"cost":`, r.Cost)
	if r.Draining {
		b = append(b, `,"draining":true`...)
	}
	if r.ResumeToken != "" {
		b = appendText(append(b, `,"place":`...), r.ResumeToken)
	}
	return append(b, '}')
}

func appendCommand(b []byte, c *control.Command) []byte {
	b = appendWord(append(b, `{"do":`...), deeds, int(c.Kind))
	if c.Reason != 0 {
		b = appendWord(append(b, `,"why":`...), reasons, int(c.Reason))
	}
	b = appendUint(b, `,"seq":`, c.Seq)
	b = appendUint(b, `,"id":`, c.ID)
	b = member(b, `,"lane":`, int64(c.Lane))
	b = appendUint(b, `,"number":`, uint64(c.Number))
	b = appendUint(b, `,"count":`, uint64(c.Count))
	b = appendUint(b, `,"run":`, uint64(c.Run))
	b = appendUint(b, `,"place":`, uint64(c.Index))
	b = member(b, `,"expect":`, int64(c.Expect))
	b = appendHistory(b, &c.History)
	return append(b, '}')
}

func appendHistory(b []byte, h *control.History) []byte {
	if *h == (control.History{}) {
		return b
	}
	b = append(b, `,"history":{"attempts":`...)
	b = strconv.AppendUint(b, uint64(h.Attempts), 10)
	b = appendUint(b, `,"failures":`, uint64(h.Failures))
	if h.Suspect {
		b = append(b, `,"suspect":true`...)
	}
	b = member(b, `,"elapsed":`, int64(h.Elapsed))
	b = append(b, `,"retry":{"n":`...)
	b = strconv.AppendUint(b, uint64(h.Retry.N), 10)
	b = appendUint(b, `,"step":`, uint64(h.Retry.Step))
	b = member(b, `,"prev":`, int64(h.Retry.Prev))
	b = member(b, `,"slept":`, int64(h.Retry.Slept))
	return append(b, "}}"...)
}

// member appends a member of a JSON object with the value n. name includes the comma before the
// member and the colon. If n is 0, member appends nothing.
func member(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendUint(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(append(b, name...), n, 10)
}

func appendWord(b []byte, words []string, n int) []byte {
	return append(appendKind(append(b, '"'), words, n), '"')
}

func appendKind(b []byte, words []string, n int) []byte {
	if n < len(words) {
		return append(b, words[n]...)
	}
	return strconv.AppendInt(b, int64(n), 10) // v has no text in words
}

// appendFloat appends the shortest text that reads back as v, which is the cost of an item. Costs
// are never NaN or infinite. JSON has no such values, and appendFloat would append 0.
func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, '0')
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// appendText appends text in quotes. It is used rarely: for names of lanes (workers), resume
// tokens, and the reason for the end of the trace.
func appendText(b []byte, text string) []byte {
	plain := true
	for i := range len(text) {
		plain = plain && text[i] >= ' ' && text[i] < 0x7f && text[i] != '"' && text[i] != '\\'
	}
	if plain {
		b = append(b, '"')
		b = append(b, text...)
		return append(b, '"')
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return append(b, `""`...) // cannot happen, because text is a string
	}
	return append(b, quoted...)
}

// appendEnd appends the last line of a trace, with the reason for its end.
func appendEnd(b []byte, now int64, why string) []byte {
	b = strconv.AppendInt(append(b, `{"now":`...), now, 10)
	b = appendText(append(b, `,"event":"end","why":`...), why)
	return append(b, "}\n"...)
}
