// Package admin is the HTTP server of the admin address. It serves metrics, health, status and the
// dashboard of the running process and, if enabled, profiles. The engine owns the [Server] and
// provides the data.
//
// Access is limited as follows:
//
//   - Without a token, the server listens only on loopback.
//   - It refuses requests with an unknown Host header, unless a token is set and Options.Hosts is
//     empty. So a page in a browser cannot read data by DNS rebinding.
//   - It refuses changes that are requested by pages of other sites.
//   - Any user of the machine can connect to loopback. Therefore records, log lines and the config
//     are available only if a token is set.
//   - Changes are also possible only if a token is set, with three exceptions: a reload, and the
//     retry and the cancellation of a parked delivery. The responses to these three contain no
//     records.
//   - Secrets in the config are masked.
package admin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/live"
	"github.com/penstock-io/penstock/engine/internal/tap"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Options of a Server.
type Options struct {
	Address string // host:port; port 0 selects a free port
	// Token is the token that clients must send as `Authorization: Bearer`. A browser signs in with
	// it, and then sends a cookie. The health pages and the Dashboard need no token. If Token is
	// "", Address must be a loopback address, and pages with records refuse all requests.
	Token string
	// Hosts are the values of the Host header that are allowed in addition to loopback names. If a
	// token is set and Hosts is empty, any value is allowed.
	Hosts  []string
	Pprof  bool                        // serve /debug/pprof
	Status func() status.Status        // safe for concurrent use; sets Ready and Why
	Live   func() status.Status        // Status without its tree, for the dashboard
	Reload func(context.Context) error // reloads the configuration; safe for concurrent use
	Log    *slog.Logger

	Dashboard http.Handler // pages without data, need no token; nil: a list of addresses
	LogTail   *live.Log
	LogLevel  *slog.LevelVar // nil means that the level cannot be changed
	Config    func() []byte  // the configuration as YAML, without secrets
	Letters   func(context.Context, LetterQuery) (LetterPage, error)
	Replay    ReplayFunc
	Metrics   []prometheus.Collector // in addition to the metrics of the status
	Tap       func(route, stage string, rate int) (*tap.Subscription, error)

	// Deliveries returns the routes that park deliveries. It must be safe for concurrent use.
	Deliveries func() []DeliveryRoute

	// Owner returns the receiver that has the given token. A receiver can access only its own
	// deliveries. Owner must be safe for concurrent use. Nil means that receivers have no tokens.
	Owner func(token string) (stream.DeliveryOwner, bool)
}

const (
	readHeader = 5 * time.Second // maximum time to read the header of a request
	idle       = time.Minute     // maximum idle time of a connection
	// answer is the maximum time to write a response. A handler of longer responses may extend it.
	// It must be longer than a CPU profile, which by default takes 30 s.
	answer          = time.Minute
	headBytes       = 16 << 10         // maximum size of the header of a request
	shutdownTimeout = 2 * time.Second  // maximum time for running requests when the process ends
	apiStatus       = "/api/v1/status" // the page that `penstock status` reads
)

// Server serves the pages on its listener.
type Server struct {
	o        Options
	hub      *live.Hub
	sessions sessions
	stopping chan struct{} // closed when Run ends
	listener net.Listener
	http     *http.Server
}

// Listen opens the port. The server handles requests only while Run is running.
func Listen(o Options) (*Server, error) {
	if err := config.CheckAddress(o.Address, o.Token != ""); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("admin: %w; give `admin:` another port, or off", err)
	}
	s := newServer(o)
	s.listener = l
	s.http = &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: readHeader, ReadTimeout: readHeader,
		WriteTimeout: answer, IdleTimeout: idle,
		MaxHeaderBytes: headBytes, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

func newServer(o Options) *Server {
	return &Server{o: o, hub: live.NewHub(o.Live), sessions: newSessions(), stopping: make(chan struct{})}
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves requests until ctx is done. Then it waits a short time for the running requests.
func (s *Server) Run(ctx context.Context) error {
	group := supervise.NewGroup(ctx)
	group.Go("admin/stop", func(ctx context.Context) error {
		<-ctx.Done()
		close(s.stopping)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if s.http.Shutdown(end) != nil {
			return s.http.Close()
		}
		return nil
	})
	group.Go("admin/live", s.hub.Run)
	err := s.http.Serve(s.listener)
	group.Stop(nil)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, group.Wait())
}

// Close closes the port. It may be called twice, and without a call of Run.
func (s *Server) Close() error {
	if err := s.http.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Handler returns the handler of all pages, including the access checks.
func (s *Server) Handler() http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics",
		promhttp.HandlerFor(Registry(s.o.Status, s.o.Metrics...), promhttp.HandlerOpts{MaxRequestsInFlight: 8}))
	pages.HandleFunc("GET "+apiStatus, s.status)
	pages.HandleFunc("POST "+apiReload, s.reload)
	s.handleLive(pages)
	s.handleRecords(pages)
	s.deliveryPages(pages)
	if s.o.Pprof {
		pages.HandleFunc("GET /debug/pprof/", pprof.Index)
		pages.HandleFunc("GET /debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, http.StatusOK, commandLine(os.Args))
		})
		pages.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		pages.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		pages.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, "ok\n")
	})
	open.HandleFunc("GET /readyz", s.ready)
	open.HandleFunc("GET "+apiSession, s.session)
	open.HandleFunc("POST "+apiSession, s.signIn)
	open.HandleFunc("DELETE "+apiSession, s.signOut)
	if s.o.Dashboard != nil {
		open.Handle("GET /{$}", s.o.Dashboard)
		open.Handle("GET /web/", s.o.Dashboard)
	} else {
		pages.HandleFunc("GET /{$}", s.index)
	}
	open.Handle("GET "+apiDeliveries+"/{key}", s.ownDelivery(s.private(pages)))
	open.Handle("/", s.private(pages))
	return s.rightHost(http.NewCrossOriginProtection().Handler(open))
}

// commandLine returns the arguments of a process, separated by NUL, as pprof.Cmdline does. It masks
// the text of a config and the passwords in URLs.
func commandLine(args []string) string {
	var out []string
	for i, arg := range args {
		switch {
		case i > 0 && (args[i-1] == "-c" || args[i-1] == "--config"):
			arg = "***"
		case strings.HasPrefix(arg, "--config="):
			arg = "--config=***"
		case strings.HasPrefix(arg, "-c") && arg != "-c":
			arg = "-c***"
		}
		out = append(out, stream.MaskURLs(arg))
	}
	return strings.Join(out, "\x00")
}

func reply(w http.ResponseWriter, status int, text string) {
	setHeaders(w, "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // an error means that the client has gone
}

// setHeaders sets the headers that all responses of this package have.
func setHeaders(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// failed replies with err. The status is 404 for an unknown route, and 503 if there are too many
// taps. For any other error, it is the argument otherwise.
func failed(w http.ResponseWriter, err error, otherwise int) {
	switch {
	case errors.Is(err, ErrNoRoute):
		otherwise = http.StatusNotFound
	case errors.Is(err, tap.ErrBusy):
		otherwise = http.StatusServiceUnavailable
	}
	reply(w, otherwise, stream.MaskURLs(err.Error())+"\n")
}

// numberOf returns the value of a parameter, a number from 1 to most. If the parameter is missing,
// numberOf returns unset. If the value is invalid, it replies with an error and returns false.
func numberOf(w http.ResponseWriter, r *http.Request, name string, unset, most int) (int, bool) {
	text := r.FormValue(name)
	if text == "" {
		return unset, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		reply(w, http.StatusBadRequest, fmt.Sprintf("%s is a number from 1 to %d\n", name, most))
		return 0, false
	}
	return n, true
}

// rightHost refuses requests with an unknown Host header.
func (s *Server) rightHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.Trim(host, "[]")
		ip := net.ParseIP(host)
		known := host == "localhost" || ip != nil && ip.IsLoopback() || slices.Contains(s.o.Hosts, host)
		if !known && (s.o.Token == "" || len(s.o.Hosts) > 0) {
			reply(w, http.StatusMisdirectedRequest, "this Host is not served; add it to "+
				"admin.hosts\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) authorized(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if s.o.Token == "" || s.sessions.valid(r) {
		return true
	}
	return ok && subtle.ConstantTimeCompare([]byte(given), []byte(s.o.Token)) == 1
}

func (s *Server) private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.authorized(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			reply(w, http.StatusUnauthorized, "a token is required: Authorization: Bearer TOKEN\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ready responds with 200 if the status is ready, otherwise with 503. The response contains the
// reasons only if the client may read them.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	status := s.o.Status()
	switch {
	case status.Ready:
		reply(w, http.StatusOK, "ready\n")
	case s.authorized(r):
		reply(w, http.StatusServiceUnavailable, "not ready\n"+strings.Join(status.Why, "\n")+"\n")
	default:
		reply(w, http.StatusServiceUnavailable, "not ready\n")
	}
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.o.Status())
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	text := "penstock\n\n/metrics\n/healthz\n/readyz\n" + apiStatus + "\n" + apiReload + " (POST)\n"
	text += apiDeliveries + "\n"
	if s.o.Pprof {
		text += "/debug/pprof/\n"
	}
	reply(w, http.StatusOK, text)
}
