package parse_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/parse"
	"github.com/penstock-io/penstock/stream"
)

// benchText is the size of the benchmark's text, which exceeds a CPU cache.
const benchText = 64 << 20

// ofLoop compares the speed of the function work with that of a single-threaded loop that only
// finds line ends. The two take turns. In each pair of turns, both process about a mebibyte of
// text, from distant places, so that neither profits from the other's cache contents. The function
// gets the text in batches of 256 KiB. The metric `of-loop` is the speed of work relative to the
// loop, as the median of the pairs. ofLoop also reports the 90th percentile, which other processes
// disturb least.
func ofLoop(bench *testing.B, text []byte, work func(b *stream.Batch)) {
	var ratios, loops, works []float64
	b := stream.NewBatch(stream.BatchLimits{})
	bench.SetBytes(int64(len(text)))
	for bench.Loop() {
		for at := 0; at < len(text); at += 1 << 20 {
			start := time.Now()
			mine := piece(text, at)
			for rest := mine; len(rest) > 0; {
				rest = rest[bytes.IndexByte(rest, '\n')+1:]
			}
			loop := time.Since(start).Seconds() / float64(len(mine))
			start = time.Now()
			mine = piece(text, (at+len(text)/2)%len(text))
			inBatches(b, mine, work)
			spent := time.Since(start).Seconds() / float64(len(mine))
			ratios, loops, works = append(ratios, loop/spent), append(loops, loop),
				append(works, spent)
		}
	}
	line := float64(len(text)) / float64(bytes.Count(text, []byte("\n"))) * 1e9
	for _, q := range []struct {
		share float64
		name  string
	}{{0.5, ""}, {0.1, "-undisturbed"}} {
		bench.ReportMetric(quantile(ratios, 1-q.share), "of-loop"+q.name)
		bench.ReportMetric(quantile(loops, q.share)*line, "loop-ns/line"+q.name)
		bench.ReportMetric(quantile(works, q.share)*line, "ns/line"+q.name)
	}
}

// piece returns about a mebibyte of whole lines.
func piece(text []byte, at int) []byte {
	if at > 0 {
		at += bytes.IndexByte(text[at:], '\n') + 1
	}
	end := min(at+1<<20, len(text))
	return text[at : bytes.LastIndexByte(text[:end], '\n')+1]
}

// inBatches fills b with lines as a source does, and calls work for each batch.
func inBatches(b *stream.Batch, lines []byte, work func(b *stream.Batch)) {
	for rest := lines; len(rest) > 0; {
		n := min(256<<10, len(rest))
		n += bytes.IndexByte(rest[n-1:], '\n')
		reparse(b, 0)
		b.Data = append(b.Data, rest[:n]...)
		b.Spans = append(b.Spans[:0], stream.Span{Part: &benchPart, Bytes: n})
		b.Origins = bytes.Count(b.Data, []byte("\n"))
		work(b)
		rest = rest[n:]
	}
}

var benchPart = stream.Partition{ID: "p", Name: "p.log"}

func quantile(v []float64, share float64) float64 {
	slices.Sort(v)
	return v[min(int(share*float64(len(v))), len(v)-1)]
}

func grown(s string) []byte { return bytes.Repeat([]byte(s), benchText/len(s)) }

// BenchmarkCombined measures parse -> drop, and parse -> JSON -> drop.
func BenchmarkCombined(bench *testing.B) {
	text := grown(sample(10000))
	p := processor(bench, parse.Options{Format: "combined"})
	var dst []byte
	bench.Run("split", func(bench *testing.B) {
		ofLoop(bench, text, func(b *stream.Batch) { b.Split() })
	})
	bench.Run("parse", func(bench *testing.B) {
		ofLoop(bench, text, func(b *stream.Batch) { mustProcess(bench, p, b) })
	})
	bench.Run("json", func(bench *testing.B) {
		ofLoop(bench, text, func(b *stream.Batch) {
			mustProcess(bench, p, b)
			dst = ndjson.Append(dst[:0], b)
		})
	})
}

// BenchmarkJSON measures parse {format: json} -> drop, and encoding to JSON again, for lines like
// those of `penstock generate --format json`.
func BenchmarkJSON(bench *testing.B) {
	text := grown(sampleJSON(10000))
	p := processor(bench, parse.Options{Format: "json"})
	var dst []byte
	bench.Run("parse", func(bench *testing.B) {
		ofLoop(bench, text, func(b *stream.Batch) { mustProcess(bench, p, b) })
	})
	bench.Run("json", func(bench *testing.B) {
		ofLoop(bench, text, func(b *stream.Batch) {
			mustProcess(bench, p, b)
			dst = ndjson.Append(dst[:0], b)
		})
	})
}

func mustProcess(bench *testing.B, p *parse.Processor, b *stream.Batch) {
	if err := p.Process(bench.Context(), b); err != nil {
		bench.Fatal(err)
	}
}
