package framing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/framing"
)

func preset(name string, most int) framing.Options {
	return options("multiline", func(o *framing.Options) { o.Preset, o.MaxLines = name, most })
}

func TestJoined(t *testing.T) {
	const at = "2026-11-21T10:00:00.000000001Z"
	cri := func(parts ...string) string {
		var b strings.Builder
		for i, p := range parts {
			fmt.Fprintf(&b, "2026-11-21T10:00:00.%09dZ %s\n", i+1, p)
		}
		return b.String()
	}
	doc := func(log, stream string) string {
		return fmt.Sprintf(`{"log":"%s","stream":"%s","time":"%s"}`, log, stream, at)
	}
	for _, c := range []struct {
		name string
		o    framing.Options
		text string
		want []string
	}{
		{"cri, whole lines", preset("cri", 100), cri("stdout F a", "stderr F b", "stdout F "),
			[]string{
				at + " stdout F a", at[:28] + "2Z stderr F b", at[:28] + "3Z stdout F "}},
		{"cri, pieces", preset("cri", 100),
			cri("stdout P one ", "stdout P two ", "stdout F three", "stdout F x"), []string{
				at + " stdout F one two three", at[:28] + "4Z stdout F x"}},
		{"cri, two streams", preset("cri", 100),
			cri("stdout P one ", "stderr F e", "stderr P e1", "stdout F two",
				"stderr F e2", "stdout F x"),
			[]string{at[:28] + "2Z stderr F e", at + " stdout F one two",
				at[:28] + "3Z stderr F e1e2", at[:28] + "6Z stdout F x"}},
		{"cri, more tags", preset("cri", 100), cri("stdout P:x one ", "stdout F:y two"),
			[]string{at + " stdout F:x one two"}},
		{"cri, cut off", preset("cri", 100), cri("stdout P one ", "stderr P e", "stdout P two"),
			[]string{
				at + " stdout P one two", at[:28] + "2Z stderr P e"}},
		{"cri, another line", preset("cri", 100),
			cri("stdout P one ") + "what is this\n" + cri("stdout F two"), []string{
				"what is this", at + " stdout F one two"}},
		{"cri, too many pieces", preset("cri", 2),
			cri("stdout P one ", "stdout P two ", "stdout P three ", "stdout F four"), []string{
				at + " stdout P one two ", at[:28] + "3Z stdout F three four"}},
		{"docker, whole lines", preset("docker", 100),
			doc(`a\n`, "stdout") + "\n" + doc(`b\n`, "stderr") + "\n", []string{
				doc(`a\n`, "stdout"), doc(`b\n`, "stderr")}},
		{"docker, pieces", preset("docker", 100), doc(`a \"`, "stdout") + "\n" + doc(`b\\\\n`,
			"stdout") + "\n" + doc(`c\\n`, "stdout") + "\n" +
			doc(`d\n`, "stdout") + "\n" + doc(`e\n`, "stdout"),
			[]string{doc(`a \"b\\\\nc\\nd\n`, "stdout"), doc(`e\n`, "stdout")}},
		{"docker, two streams", preset("docker", 100), doc("a", "stdout") + "\n" + doc(`e\n`,
			"stderr") + "\n" + doc(`b\n`, "stdout") + "\n",
			[]string{doc(`e\n`, "stderr"), doc(`ab\n`, "stdout")}},
		{"docker, other keys", preset("docker", 100),
			`{"stream":"stdout", "attrs":{"log":"no"}, "log":"a"}` + "\n" + doc(`b\n`, "stdout") +
				"\n",
			[]string{`{"stream":"stdout", "attrs":{"log":"no"}, "log":"ab\n"}`}},
		{"docker, no json", preset("docker", 100), "text\n{\"log\":1}\n{\"log\":\"x\n\n",
			[]string{"text", `{"log":1}`, `{"log":"x`, ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(100) {
				g := file{c.o, in("utf-8", "keep"), []byte(c.text)}.read(t,
					rand.New(rand.NewPCG(seed, 5)))
				if g.err != nil || !slices.Equal(g.texts, c.want) {
					t.Fatalf("seed %d:\n%s\nwant\n%s\n%v", seed, strings.Join(g.texts, "\n"),
						strings.Join(c.want, "\n"), g.err)
				}
			}
		})
	}
	g := file{preset("cri", 100), in("utf-8", "replace"),
		[]byte(cri("stdout P a\xff", "stdout F b"))}.read(t, rand.New(rand.NewPCG(1, 5)))
	if want := []string{at + " stdout F a\ufffdb"}; g.err != nil || !slices.Equal(g.texts, want) {
		t.Errorf("%q, %v", g.texts, g.err)
	}
}

// TestJoinedBound checks that an endless group is cut at its limits without a loss.
func TestJoinedBound(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "t std%d P %05d,\n", i%2, i)
	}
	for _, most := range []int{30, 1000, 1 << 20} {
		framed, err := preset("cri", 700).New(most)
		if err != nil {
			t.Fatal(err)
		}
		text, n, got := b.String(), 0, 0
		for n < len(text) {
			f := framed.Next([]byte(text[n:]), true)
			if f.Size <= 0 || f.Size > max(most, 20)+1 {
				t.Fatalf("a frame of %d bytes, at most %d", f.Size, most)
			}
			got += strings.Count(text[n:n+f.Size], ",")
			n += f.Size
		}
		if got != 4000 {
			t.Errorf("%d pieces", got)
		}
	}
}

// FuzzJoined checks that the output of containers to each stream is read in order and whole,
// however it was cut into pieces.
func FuzzJoined(f *testing.F) {
	f.Add([]byte("abc"), uint64(1), true)
	f.Add([]byte("a long line, and another one\x00\x01"), uint64(7), false)
	f.Fuzz(func(t *testing.T, script []byte, seed uint64, docker bool) {
		name := "cri"
		if docker {
			name = "docker"
		}
		var log strings.Builder
		var want [2][]string
		var open [2]string
		var begun [2]bool
		for i, c := range script[:min(len(script), 200)] {
			s, piece, final := int(c)&1, fmt.Sprintf("%d.%d ", i, c>>2), c&2 != 0
			open[s] += piece
			begun[s] = !final
			if final {
				want[s] = append(want[s], open[s])
				open[s] = ""
			}
			end := ""
			switch {
			case docker && final:
				end = `\n`
				fallthrough
			case docker:
				fmt.Fprintf(&log, `{"log":"%s%s","stream":"%d","time":"t"}`+"\n", piece, end, s)
			case final:
				fmt.Fprintf(&log, "t %d F %s\n", s, piece)
			default:
				fmt.Fprintf(&log, "t %d P %s\n", s, piece)
			}
		}
		for s := range 2 {
			if begun[s] {
				want[s] = append(want[s], open[s])
			}
		}
		g := file{preset(name, 1000), in("utf-8", "keep"), []byte(log.String())}.read(t,
			rand.New(rand.NewPCG(seed, 1)))
		var got [2][]string
		for _, text := range g.texts {
			var s int
			var out string
			if docker {
				rest := strings.TrimPrefix(text, `{"log":"`)
				out = rest[:strings.Index(rest, `","stream"`)]
				out = strings.TrimSuffix(out, `\n`)
				s = int(rest[strings.Index(rest, `"stream":"`)+len(`"stream":"`)] - '0')
			} else {
				s, out = int(text[2]-'0'), text[6:]
			}
			got[s] = append(got[s], out)
		}
		for s := range 2 {
			if !slices.Equal(got[s], want[s]) {
				t.Fatalf("stream %d: %q, want %q of\n%s", s, got[s], want[s], log.String())
			}
		}
	})
}
