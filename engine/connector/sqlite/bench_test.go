package sqlite_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
	"github.com/penstock-io/penstock/stream"
)

// rowsPerBatch is the sink's preferred batch.
const rowsPerBatch = 10_000

var benchFields = []string{"host", "identity", "user", "timestamp", "method", "path", "protocol",
	"status", "size", "referrer", "agent"}

// accessRow returns the fields of a parsed access log line.
func accessRow(i int) []string {
	return []string{
		fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255), "-", "-",
		"17/May/2015:10:05:03 +0000", "GET",
		fmt.Sprintf("/presentations/logstash-monitorama-2013/images/%d.png", i), "HTTP/1.1", "200",
		fmt.Sprint(1000 + i),
		"http://semicomplete.com/presentations/logstash-monitorama-2013/",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"Chrome/32.0.1700.77 Safari/537.36",
	}
}

// parsed returns batch n of the rows of accessRow, as the parser creates them. If plain is set, the
// records are unparsed lines of the same text.
func parsed(n int, plain bool) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{Bytes: 16 << 20, Records: rowsPerBatch})
	b.Names = append(b.Names, benchFields...)
	for i := range rowsPerBatch {
		row := accessRow(n*rowsPerBatch + i)
		r := stream.Record{Off: uint32(len(b.Data)), Field: uint32(len(b.Fields)),
			NumFields: uint32(len(row))}
		if plain {
			r.NumFields = 0
		}
		for k, text := range row {
			kind := stream.Text
			if k == 7 || k == 8 {
				kind = stream.Number
			}
			if !plain {
				f := stream.Field{Name: uint32(k), Kind: kind, Off: uint32(len(b.Data)),
					Len: uint32(len(text))}
				b.Fields = append(b.Fields, f)
			}
			b.Data = append(append(b.Data, text...), ' ')
		}
		b.Data[len(b.Data)-1] = '\n'
		r.Len = uint32(len(b.Data)) - r.Off - 1
		r.Origin = stream.Position{Num: int64(n*rowsPerBatch + i + 1)}
		b.Records = append(b.Records, r)
	}
	b.Origins = rowsPerBatch
	b.Spans = []stream.Span{{
		Part: &stream.Partition{ID: "bench", Name: "bench"},
		Range: stream.Range{
			From: stream.Position{Num: int64(n * rowsPerBatch)},
			To:   stream.Position{Num: int64((n + 1) * rowsPerBatch)},
		},
		Bytes: len(b.Data),
	}}
	b.Parsed()
	return b
}

// BenchmarkAgainstInsertLoop prints the speed of the sink relative to a loop of prepared inserts
// with the same batch size and synchronous setting. The two take turns, seven times each. The
// median ratio should be at least 0.9.
func BenchmarkAgainstInsertLoop(b *testing.B) {
	const pairs, batches = 7, 5
	for _, plain := range []bool{false, true} {
		b.Run(map[bool]string{false: "parsed", true: "lines"}[plain], func(b *testing.B) {
			var input []*stream.Batch
			for n := range batches {
				input = append(input, parsed(n, plain))
			}
			var ratios []float64
			for b.Loop() {
				ratios = ratios[:0]
				for range pairs {
					bare := insertLoop(b, plain, batches)
					ours := throughSink(b, input)
					ratios = append(ratios, bare.Seconds()/ours.Seconds())
					b.Logf("bare loop %v, sink %v: %.2f", bare, ours, bare.Seconds()/ours.Seconds())
				}
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[pairs/2], "of-a-bare-loop")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func insertLoop(b *testing.B, plain bool, batches int) time.Duration {
	names := benchFields
	if plain {
		names = []string{"message"}
	}
	path := filepath.Join(b.TempDir(), "bare.db")
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	types := make([]string, len(names))
	for i, n := range names {
		types[i] = n + " TEXT"
		if n == "status" || n == "size" {
			types[i] = n + " INTEGER"
		}
	}
	if _, err := db.Exec("CREATE TABLE lines (" + strings.Join(types, ",") + ")"); err != nil {
		b.Fatal(err)
	}
	var rows [][]any
	for i := range batches * rowsPerBatch {
		row := accessRow(i)
		if plain {
			row = []string{strings.Join(row, " ")}
		}
		args := make([]any, len(row))
		for k, text := range row {
			args[k] = text
		}
		rows = append(rows, args)
	}
	start := time.Now()
	for n := range batches {
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		stmt, err := tx.Prepare("INSERT INTO lines VALUES (?" +
			strings.Repeat(",?", len(names)-1) + ")")
		if err != nil {
			b.Fatal(err)
		}
		for _, args := range rows[n*rowsPerBatch : (n+1)*rowsPerBatch] {
			if _, err := stmt.Exec(args...); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

func throughSink(b *testing.B, input []*stream.Batch) time.Duration {
	o := *sqlite.DefaultOptions()
	o.Path, o.Table = filepath.Join(b.TempDir(), "sink.db"), "lines"
	h := connectortest.NewHost(b)
	s := newSink(b, o, h)
	var lane stream.Lane
	err := s.Open(b.Context(), stream.SinkOptions{Pipeline: "bench", Route: "main", Lanes: func(l []stream.Lane) {
		lane = l[0]
	}})
	if err == nil {
		_, err = s.Load(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	for n, batch := range input {
		if err := batch.Encode(s); err != nil {
			b.Fatal(err)
		}
		if _, err := lane.Worker.Deliver(b.Context(),
			stream.Attempt{Value: batch, Index: uint32(n)}); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(start)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}
