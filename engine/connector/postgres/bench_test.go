package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// BenchmarkAgainstCopy prints the speed of the sink with four connections relative to psql's \copy
// of the same rows. The two take turns, seven times each, and the median ratio should be at least
// 1.5. The sink's time includes splitting and encoding; psql's time includes its start, about 20
// ms. Each lane encodes into reused memory, as with the engine's pool.
func BenchmarkAgainstCopy(b *testing.B) {
	const pairs, batches, rows = 7, 30, 10_000
	server := server.Get(b)
	for _, plain := range []bool{false, true} {
		b.Run(map[bool]string{false: "parsed", true: "lines"}[plain], func(b *testing.B) {
			d := fresh(b, server)
			file := filepath.Join(b.TempDir(), "rows.txt")
			if err := os.WriteFile(file, copyText(batches*rows, plain), 0o600); err != nil {
				b.Fatal(err)
			}
			table := "CREATE TABLE lines (message text)"
			if !plain {
				table = "CREATE TABLE lines (" + strings.Join(accessFields, " text, ") + " text)"
				table = strings.NewReplacer("status text", "status bigint", "size text",
					"size bigint", "user", `"user"`).Replace(table)
			}
			var ratios []float64
			for b.Loop() {
				ratios = ratios[:0]
				for range pairs {
					renew(b, d, table)
					bare := psqlCopy(b, d, file)
					renew(b, d, table)
					ours := throughSink(b, d, batches, rows, plain)
					ratios = append(ratios, bare.Seconds()/ours.Seconds())
					b.Logf("psql \\copy %v, sink %v: %.2f", bare, ours,
						bare.Seconds()/ours.Seconds())
				}
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[pairs/2], "x-psql-copy")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// renew recreates the table, and runs a checkpoint before the measurement.
func renew(b *testing.B, d *database, table string) {
	b.Helper()
	d.exec(b, "DROP TABLE IF EXISTS lines")
	d.exec(b, table)
	d.exec(b, "CHECKPOINT")
}

// accessFields are the fields that parse {format: combined} extracts.
var accessFields = []string{"host", "identity", "user", "timestamp", "method", "path", "protocol",
	"status", "size", "referrer", "agent"}

// accessRow has an empty text for each null of the parser.
func accessRow(i int) []string {
	return []string{
		fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255), "", "",
		"17/May/2015:10:05:03 +0000", "GET",
		fmt.Sprintf("/presentations/logstash-monitorama-2013/images/%d.png", i), "HTTP/1.1", "200",
		fmt.Sprint(1000 + i),
		"http://semicomplete.com/presentations/logstash-monitorama-2013/",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"Chrome/32.0.1700.77 Safari/537.36",
	}
}

func copyText(rows int, plain bool) []byte {
	var out []byte
	for i := range rows {
		if plain {
			out = append(append(out, strings.Join(accessRow(i), " ")...), '\n')
			continue
		}
		for k, text := range accessRow(i) {
			if k > 0 {
				out = append(out, '\t')
			}
			if text == "" {
				text = `\N`
			}
			out = append(out, text...)
		}
		out = append(out, '\n')
	}
	return out
}

func psqlCopy(b *testing.B, d *database, file string) time.Duration {
	b.Helper()
	start := time.Now()
	out, err := exec.Command("psql", "-q", "-d", d.url, "-c",
		`\copy `+d.schema+`.lines from '`+file+`'`).CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return time.Since(start)
}

var runs int

func throughSink(b *testing.B, d *database, batches, rows int, plain bool) time.Duration {
	b.Helper()
	o := d.options("lines")
	o.OnNewField = "ignore"
	runs++
	o.Ledger = fmt.Sprintf("bench/%d", runs)
	s := open(b, o)
	defer s.Close()
	all := make(chan *stream.Batch, batches)
	for range batches {
		fields := make([][]field, rows)
		for i := range fields {
			row := accessRow(int(s.rows.Next) + i)
			if plain {
				fields[i] = []field{{"message", stream.Text, strings.Join(row, " ")}}
				continue
			}
			for k, name := range accessFields {
				kind := stream.Text
				if name == "status" || name == "size" {
					kind = stream.Number
				} else if row[k] == "" {
					kind = stream.Null
				}
				fields[i] = append(fields[i], field{name, kind, row[k]})
			}
		}
		all <- s.batch(fields...)
	}
	close(all)
	start := time.Now()
	var work sync.WaitGroup
	for _, l := range s.lanes {
		work.Go(func() {
			for batch := range all {
				if _, err := l.Worker.Deliver(context.Background(), stream.Attempt{Value: batch}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	work.Wait()
	return time.Since(start)
}
