package compat

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestJavaPoints compares the ports of Java classes with Java's own arithmetic, at the ends of the
// parameter space. testdata/JavaPoints.java computed the points.
func TestJavaPoints(t *testing.T) {
	file, err := os.Open("testdata/java_points.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	points := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		p := point{t, fields}
		want := fields[len(fields)-1]
		if got := p.compute(); got != want {
			t.Errorf("%q: %s, want %s", fields[:len(fields)-1], got, want)
		}
		points[fields[0]]++
	}
	if len(points) < 15 {
		t.Errorf("points of %d kinds, want 15: %v", len(points), points)
	}
}

// point is a line of java_points.tsv: the kind, the arguments and the result.
type point struct {
	t      *testing.T
	fields []string
}

func (p point) long(i int) int64 {
	n, err := strconv.ParseInt(p.fields[i], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p point) int(i int) int { return int(p.long(i)) }

func (p point) float(i int) float64 {
	x, err := strconv.ParseFloat(p.fields[i], 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return x
}

func (p point) unit(i int) JavaUnit {
	u, err := ParseJavaUnit(p.fields[i])
	if err != nil {
		p.t.Fatal(err)
	}
	return u
}

func (p point) compute() string {
	switch p.fields[0] {
	case "fixed_time":
		return fmt.Sprint(HadoopFixedTime(p.long(1), p.long(2), JavaSeconds).maxRetries)
	case "beyond":
		f := HadoopFailure{Retries: p.int(1), Failovers: p.int(2)}
		return fmt.Sprint(HadoopFailover{MaxRetries: p.int(3), Compat: true}.beyondRetries(f))
	case "pairs":
		return pairsOf(p.fields[1])
	case "curator":
		return choicesOf(Curator{Compat: true}.choices(p.int(1)))
	case "jodis":
		return choicesOf(Jodis{Compat: true}.choices(p.int(1)))
	case "double":
		return javaDouble(p.float(1))
	}
	return strconv.FormatInt(int64(p.wait()), 10)
}

func (p point) wait() time.Duration {
	switch p.fields[0] {
	case "exponential":
		u := p.float(3)
		n := int(int32(p.long(2)) + 1)
		return p.unit(4).delay(hadoopTime(p.long(1), n, math.MaxInt64, true, u))
	case "proportional":
		return HadoopProportional(1, p.long(1), p.unit(3)).Compat().delay(p.int(2), nil)
	case "failover":
		return millis(hadoopTime(p.long(1), p.int(2), p.long(3), true, p.float(4)))
	case "linear":
		return HadoopLinear{}.wait(HadoopPair{Sleep: millis(p.long(1))}, p.float(2))
	case "pekko":
		lowest, highest := time.Duration(p.long(1)), time.Duration(p.long(2))
		return Pekko{lowest, highest, p.float(3), true}.Delay(p.int(4), p.float(5))
	case "resilience4j":
		return p.resilience4j()
	case "flume_sink":
		return FlumePenalty{Max: millis(p.long(1)), Compat: true}.Penalty(p.int(2))
	case "flume_order":
		return FlumeOrder{Max: millis(p.long(1)), Compat: true}.penalty(uint32(p.int(2)))
	case "flume_spool":
		return Flume{Max: millis(p.long(1)), Compat: true}.wait(uint32(p.int(2)))
	}
	p.t.Fatalf("unknown kind %q", p.fields[0])
	return 0
}

func (p point) resilience4j() time.Duration {
	r := Resilience4j{
		Initial: millis(p.long(1)), Multiplier: p.float(2), Randomization: p.float(3),
		Max: millis(p.long(4)), Capped: true, Compat: true,
	}
	r.Random = !(r.Randomization < 0)
	d, err := r.Delay(p.int(5), p.float(6))
	if err != nil {
		p.t.Errorf("%q: %v", p.fields, err)
	}
	return d
}

func pairsOf(text string) string {
	p := ParseHadoopMultipleLinearRandom(text)
	if p == nil {
		return "null"
	}
	var list []string
	for _, pair := range p.Pairs() {
		list = append(list, fmt.Sprintf("%dx%d", pair.Retries, pair.Sleep.Milliseconds()))
	}
	return strings.Join(list, " ")
}

func choicesOf(n uint64, err error) string {
	if err != nil {
		return "throws"
	}
	return strconv.FormatUint(n, 10)
}
