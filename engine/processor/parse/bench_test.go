package parse_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/parse"
)

// benchText is how much text the benchmarks go through: more than a cache holds.
const benchText = 64 << 20

// ofLoop measures work over text, in batches of 256 KiB, in turn with a loop that only looks for line ends in the same text
// on one thread. It reports the median of the pairs: `of-loop` is the share of the loop's speed.
func ofLoop(bench *testing.B, text []byte, work func(b *penstock.Batch)) {
	var ratios, loops, works []float64
	lines := float64(bytes.Count(text, []byte("\n")))
	b := penstock.NewBatch(penstock.Limits{})
	part := &penstock.Partition{ID: "p", Name: "p.log"}
	bench.SetBytes(int64(len(text)))
	for bench.Loop() {
		start := time.Now()
		for rest := text; len(rest) > 0; {
			rest = rest[bytes.IndexByte(rest, '\n')+1:]
		}
		loop := time.Since(start)
		start = time.Now()
		for rest := text; len(rest) > 0; {
			n := min(256<<10, len(rest))
			n += bytes.IndexByte(rest[n-1:], '\n')
			reparse(b, 0)
			b.Data = append(b.Data, rest[:n]...)
			b.Spans = append(b.Spans[:0], penstock.Span{Part: part, Bytes: n})
			b.Origins = bytes.Count(b.Data, []byte("\n"))
			work(b)
			rest = rest[n:]
		}
		spent := time.Since(start)
		ratios = append(ratios, float64(loop)/float64(spent))
		loops, works = append(loops, float64(loop)/lines), append(works, float64(spent)/lines)
	}
	bench.ReportMetric(median(ratios), "of-loop")
	bench.ReportMetric(median(loops), "loop-ns/line")
	bench.ReportMetric(median(works), "ns/line")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func grown(s string) []byte { return bytes.Repeat([]byte(s), benchText/len(s)) }

// BenchmarkCombined: parse -> drop, and parse -> JSON -> drop.
func BenchmarkCombined(bench *testing.B) {
	text := grown(sample(10000))
	p := processor(bench, parse.Options{Format: "combined"})
	var dst []byte
	bench.Run("split", func(bench *testing.B) {
		ofLoop(bench, text, func(b *penstock.Batch) { b.Split() })
	})
	bench.Run("parse", func(bench *testing.B) {
		ofLoop(bench, text, func(b *penstock.Batch) { mustProcess(bench, p, b) })
	})
	bench.Run("json", func(bench *testing.B) {
		ofLoop(bench, text, func(b *penstock.Batch) {
			mustProcess(bench, p, b)
			dst = ndjson.Append(dst[:0], b)
		})
	})
}

// BenchmarkJSON: parse {format: json} -> drop, and to JSON again, of lines like those that `penstock generate --format json` makes.
func BenchmarkJSON(bench *testing.B) {
	text := grown(sampleJSON(10000))
	p := processor(bench, parse.Options{Format: "json"})
	var dst []byte
	bench.Run("parse", func(bench *testing.B) {
		ofLoop(bench, text, func(b *penstock.Batch) { mustProcess(bench, p, b) })
	})
	bench.Run("json", func(bench *testing.B) {
		ofLoop(bench, text, func(b *penstock.Batch) {
			mustProcess(bench, p, b)
			dst = ndjson.Append(dst[:0], b)
		})
	})
}

func mustProcess(bench *testing.B, p *parse.Processor, b *penstock.Batch) {
	if err := p.Process(bench.Context(), b); err != nil {
		bench.Fatal(err)
	}
}
