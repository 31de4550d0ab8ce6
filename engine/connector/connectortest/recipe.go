package connectortest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server is a real server that is started by a recipe. The environment variable PENSTOCK_RECIPES
// names the directory of recipes. Each recipe is a script NAME/start.sh, which is called with a
// directory and a port. The script stop.sh in the directory of recipes stops every server.
type Server struct {
	URL string

	name, dir string
	port      string
}

// StartServer starts a server on a free port with an empty directory, and stops it when the test
// ends. name is the name of its recipe. If PENSTOCK_RECIPES is not set, or if the given program is
// not installed, StartServer skips the test. But if an environment variable demands this server, it
// fails the test. The name of this variable is PENSTOCK_ and the recipe's name in upper case, such
// as PENSTOCK_KAFKA.
func StartServer(t testing.TB, name, program string) *Server {
	t.Helper()
	s := NewServer(t, name, program)
	s.Start(t)
	return s
}

// NewServer is like StartServer, but does not start the server.
func NewServer(t testing.TB, name, program string) *Server {
	t.Helper()
	s := newServer(t, name, program)
	t.Cleanup(func() {
		s.Kill(t)
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("removing what %s has left: %v", name, err)
		}
	})
	return s
}

// Address returns the address on which the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.port) }

// Shared is a server that several tests of a package share. Name and Program are required; see
// [StartServer]. TestMain must call Run. The first call of Get starts the server.
type Shared struct {
	Name, Program string

	mu     sync.Mutex
	server *Server // nil before the first Get
}

// Get returns the running server. It skips or fails the test in the same cases as StartServer. If
// the server did not start for an earlier test, Get fails the test.
func (s *Shared) Get(t testing.TB) *Server {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		server := newServer(t, s.Name, s.Program)
		s.server = server // even if it does not start: Run removes its files
		server.Start(t)
	}
	if s.server.URL == "" {
		t.Fatalf("%s did not start for an earlier test", s.Name)
	}
	return s.server
}

// Run runs the tests as [RunWaiting] does, then kills the server if it was started, and returns the
// exit code.
func (s *Shared) Run(m *testing.M) int {
	code := RunWaiting(m)
	if s.server == nil {
		return code
	}
	_, err := s.server.script("stop.sh", s.server.dir, "KILL")
	if err = errors.Join(err, os.RemoveAll(s.server.dir)); err != nil {
		fmt.Fprintf(os.Stderr, "stopping %s: %v\n", s.Name, err)
		return max(code, 1)
	}
	return code
}

// newServer returns a stopped server with its own directory.
func newServer(t testing.TB, name, program string) *Server {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if asked := "PENSTOCK_" + strings.ToUpper(name); os.Getenv(asked) != "" {
			t.Fatalf(asked+" is set, but "+format, args...)
		}
		t.Skipf("skipped: "+format, args...)
	}
	recipes := os.Getenv("PENSTOCK_RECIPES")
	if recipes == "" {
		missing("PENSTOCK_RECIPES names no folder of recipes that start a real %s", name)
	}
	if _, err := exec.LookPath(program); err != nil {
		missing("%s is not installed (no program %s)", name, program)
	}
	dir, err := os.MkdirTemp("", "penstock-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	return &Server{name: name, dir: dir, port: strconv.Itoa(FreePort(t))}
}

// Start starts the server. After Stop or Kill, it starts with the same port and data.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	out, err := s.script(filepath.Join(s.name, "start.sh"), s.dir, s.port)
	url, ok := strings.CutPrefix(strings.TrimSpace(out), "ready ")
	if err != nil || !ok {
		t.Fatalf("starting %s: %v: %s", s.name, err, out)
	}
	s.URL = url
}

// Stop stops the server and waits for its end. Start can start it again.
func (s *Server) Stop(t testing.TB) { s.stop(t) }

// Kill kills the server and its children with SIGKILL, as in a crash.
func (s *Server) Kill(t testing.TB) { s.stop(t, "KILL") }

// Log returns the output of the server since its last start.
func (s *Server) Log(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Error(err)
	}
	return text
}

func (s *Server) stop(t testing.TB, how ...string) {
	t.Helper()
	if out, err := s.script("stop.sh", append([]string{s.dir}, how...)...); err != nil {
		t.Errorf("stopping %s: %v: %s", s.name, err, out)
	}
}

func (s *Server) script(name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(os.Getenv("PENSTOCK_RECIPES"), name), args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return string(out), err
}
