package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// malformed is a Framer for which all data is wrong.
type malformed struct {
	buf [16]byte
	n   int
}

// Space implements Framer.
func (f *malformed) Space() []byte { return f.buf[f.n:] }

// Frame implements Framer.
func (f *malformed) Frame(n int) (intake.Records, error) {
	f.n += n
	return intake.Records{}, errors.New("wrong")
}

// Rest implements Framer.
func (f *malformed) Rest() intake.Records { return intake.Records{} }

// Pending implements Framer.
func (f *malformed) Pending() int { return f.n }

// endless is a Framer for which no record ends.
type endless struct{ malformed }

// Frame implements Framer.
func (f *endless) Frame(n int) (intake.Records, error) {
	f.n += n
	return intake.Records{}, nil
}

// TestSlowRecord checks a client that sends a record byte by byte. Its connection is closed when
// the idle time has passed since the first byte of the record.
func TestSlowRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewHost(t)
		in, err := intake.New(intake.Options{Name: "test"}, h)
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range 10 {
				time.Sleep(40 * time.Second)
				if _, err := client.Write([]byte("x")); err != nil {
					return
				}
			}
		}()
		s := &Streams{Intake: in, Host: h, IdleTime: time.Minute,
			Framer: func(string) Framer { return new(endless) }}
		begun := time.Now()
		s.pump(t.Context(), server, func(bool) {})
		if took := time.Since(begun); took != 100*time.Second {
			t.Errorf("the connection was open for %v, want 40s until the first byte and 1m", took)
		}
		if h.Counted("connections_timed_out") != 1 || h.Counted("bytes_discarded") != 2 {
			t.Errorf("%d connections timed out, %d bytes discarded; want 1 and 2",
				h.Counted("connections_timed_out"), h.Counted("bytes_discarded"))
		}
		_ = client.Close()
		_ = server.Close()
		<-ended
	})
}

// TestAcceptedAtStop checks a connection that is added just after all connections were closed. It
// must be closed as well. Otherwise the source would stop only after the idle time of this
// connection.
func TestAcceptedAtStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewHost(t)
		in, err := intake.New(intake.Options{Name: "test"}, h)
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		s := &Streams{Intake: in, Host: h, IdleTime: time.Hour, open: make(map[net.Conn]bool),
			Framer: func(string) Framer { return new(endless) }}
		s.closeAll()
		s.add(server)
		begun := time.Now()
		s.pump(t.Context(), server, func(bool) {})
		if took := time.Since(begun); took != 0 {
			t.Errorf("the connection was open for %v after the stop", took)
		}
		_ = client.Close()
		_ = server.Close()
	})
}

// TestSlowDrain checks that a client that goes on sending does not delay a drain.
func TestSlowDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
		in, err := intake.New(intake.Options{Name: "test"}, h)
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				time.Sleep(lastWait / 2)
				if _, err := client.Write([]byte("x\n")); err != nil {
					return
				}
			}
		}()
		s := &Streams{Intake: in, Host: h, IdleTime: time.Hour, Framer: func(string) Framer {
			return &lines{intake.NewCutter(100, '\n', 0)}
		}}
		s.open = map[net.Conn]bool{server: false}
		read := make(chan struct{})
		go func() {
			defer close(read)
			s.pump(t.Context(), server, func(bool) {})
		}()
		synctest.Wait()
		begun := time.Now()
		s.setDraining(true)
		<-read
		if took := time.Since(begun); took < lastTime || took > lastTime+lastWait {
			t.Errorf("the connection was read for %v, want %v", took, lastTime)
		}
		if records := in.Held() / (2 + intake.RecordOverhead); records < 160 {
			t.Errorf("%d records were submitted, want one each %v", records, lastWait/2)
		}
		if want := "connection closed by a stop"; !strings.Contains(h.Logged(), want) {
			t.Errorf("the log has no %q:\n%s", want, h.Logged())
		}
		s.setDraining(true)
		time.Sleep(lastTime / 2)
		begun = time.Now()
		s.pump(t.Context(), server, func(bool) {}) // as for a client that has connected again
		if took := time.Since(begun); took < lastTime/2 || took > lastTime/2+lastWait {
			t.Errorf("a connection that came during the drain was read for %v", took)
		}
		begun = time.Now()
		s.pump(t.Context(), server, func(bool) {})
		if took := time.Since(begun); took != 0 {
			t.Errorf("a connection that came late in the drain was read for %v", took)
		}
		_ = client.Close()
		_ = server.Close()
		<-ended
	})
}

// TestManyChecks checks that a busy connection stays open although others often need its place.
// Each check has its own limits.
func TestManyChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
		in, err := intake.New(intake.Options{Name: "test"}, h)
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		s := &Streams{Intake: in, Host: h, IdleTime: time.Hour, Framer: func(string) Framer {
			return &lines{intake.NewCutter(100, '\n', 0)}
		}}
		s.open = map[net.Conn]bool{server: false}
		read := make(chan struct{})
		go func() {
			defer close(read)
			s.pump(t.Context(), server, func(bool) {})
		}()
		const records = 600
		for n := range records {
			s.check(server)
			time.Sleep(lastWait / 2)
			if _, err := client.Write([]byte("x\n")); err != nil {
				t.Errorf("record %d: %v", n, err)
				break
			}
		}
		_ = client.Close()
		<-read
		if got := in.Held() / (2 + intake.RecordOverhead); got != records {
			t.Errorf("%d of %d records were submitted", got, records)
		}
		_ = server.Close()
	})
}

// lines is a Framer for lines.
type lines struct{ *intake.Cutter }

// Frame implements Framer.
func (f *lines) Frame(n int) (intake.Records, error) { return f.Cut(n), nil }

// Rest implements Framer.
func (f *lines) Rest() intake.Records { return f.End() }

// TestSilentTLS checks that a connection that needs TLS and sends nothing is closed after 10 s, and
// counted as a failed handshake.
func TestSilentTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewHost(t)
		in, err := intake.New(intake.Options{Name: "test"}, h)
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		s := &Streams{Intake: in, Host: h, IdleTime: time.Hour, TLS: new(tls.Config),
			Framer: func(string) Framer { return new(endless) }}
		begun := time.Now()
		s.pump(t.Context(), tls.Server(server, s.TLS), func(bool) {})
		if took := time.Since(begun); took != handshakeTime {
			t.Errorf("the connection was open for %v, want %v", took, handshakeTime)
		}
		failed, idle := h.Counted("handshakes_failed"), h.Counted("connections_timed_out")
		if failed != 1 || idle != 0 {
			t.Errorf("%d handshakes failed and %d connections timed out, want 1 and 0", failed,
				idle)
		}
		_ = client.Close()
		_ = server.Close()
	})
}

// TestMalformedCounts checks that if a connection is closed for malformed data, its bytes after the
// last record are counted as discarded.
func TestMalformedCounts(t *testing.T) {
	h := streamtest.NewHost(t)
	in, err := intake.New(intake.Options{Name: "test"}, h)
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	defer client.Close()
	go func() { _, _ = client.Write([]byte("12345")) }()
	s := &Streams{Intake: in, Host: h, IdleTime: time.Minute,
		Framer: func(string) Framer { return new(malformed) }}
	s.pump(t.Context(), server, func(bool) {})
	if h.Counted("connections_malformed") != 1 || h.Counted("bytes_discarded") != 5 {
		t.Errorf("%d connections and %d bytes are counted, want 1 and 5",
			h.Counted("connections_malformed"), h.Counted("bytes_discarded"))
	}
}
