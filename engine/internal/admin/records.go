package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

const (
	apiDead    = "/api/v1/dead"
	apiReplay  = "/api/v1/dead/replay"
	apiDiscard = "/api/v1/dead/discard"

	lettersTimeout = 30 * time.Second // maximum time to search a file of dead letters
	replayTimeout  = 30 * time.Minute
	defaultLetters = 100 // number of letters on a page
	maxLetters     = 1000
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError}

// LetterQuery selects dead letters of a route.
type LetterQuery struct {
	Pipeline, Route string
	Filter          deadletter.Filter
	Settled         bool // include letters that a replay or discard has settled
	Limit           int  // maximum number of returned letters; the newest are returned
}

// LetterPage is the result of a LetterQuery.
type LetterPage struct {
	Entries []Letter `json:"letters"` // newest first
	Matched int64    `json:"matched"` // number of matching letters
	Open    int64    `json:"open"`    // number of all unsettled letters of the route
	Skipped int      `json:"skipped"` // number of lines that are not letters
}

// Letter is a dead letter with its state.
type Letter struct {
	*deadletter.Entry
	Settled bool `json:"settled"` // settled by a replay or discard
}

// ReplayFunc delivers dead letters again or, if discard is set, settles them without a delivery.
type ReplayFunc func(ctx context.Context, pipeline, route string, filter deadletter.Filter,
	discard bool) (status.Replay, error)

// ErrNoRoute means that the config has no such pipeline or route.
var ErrNoRoute = errors.New("there is no such route")

func (s *Server) handleRecords(pages *http.ServeMux) {
	pages.Handle("GET "+apiDead, s.guarded(s.letters))
	pages.Handle("GET "+apiTap, s.guarded(s.tap))
	pages.Handle("POST "+apiReplay, s.guarded(s.replay))
	pages.Handle("POST "+apiDiscard, s.guarded(s.replay))
}

func (s *Server) letters(w http.ResponseWriter, r *http.Request) {
	limit, ok := numberOf(w, r, "limit", defaultLetters, maxLetters)
	if !ok {
		return
	}
	q := LetterQuery{
		Pipeline: r.FormValue("pipeline"), Route: r.FormValue("route"),
		Settled: r.FormValue("settled") == "true", Limit: limit,
		Filter: deadletter.Filter{Reason: r.FormValue("reason")},
	}
	ctx, cancel := context.WithTimeout(r.Context(), lettersTimeout)
	defer cancel()
	page, err := s.o.Letters(ctx, q)
	if err != nil {
		failed(w, err, http.StatusInternalServerError)
		return
	}
	if page.Entries == nil {
		page.Entries = []Letter{}
	}
	writeJSON(w, http.StatusOK, page)
}

// selection is the body of a request to replay or discard dead letters. Exactly one of IDs and All
// must be set.
type selection struct {
	Pipeline string   `json:"pipeline"`
	Route    string   `json:"route"`
	IDs      []string `json:"ids"`
	All      bool     `json:"all"`    // all letters that are not settled
	Reason   string   `json:"reason"` // part of the reason of the letters; "" means any
}

func (s *Server) replay(w http.ResponseWriter, r *http.Request) {
	var in selection
	if !readJSON(w, r, &in) {
		return
	}
	if (len(in.IDs) > 0) == in.All {
		reply(w, http.StatusBadRequest, "give either ids or all\n")
		return
	}
	// Connections in tests have no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(replayTimeout + answer))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), replayTimeout)
	defer cancel()
	result, err := s.o.Replay(ctx, in.Pipeline, in.Route, deadletter.Filter{Reason: in.Reason, IDs: in.IDs},
		r.URL.Path == apiDiscard)
	switch {
	case errors.Is(err, ErrNoRoute):
		failed(w, err, http.StatusNotFound)
	case err != nil:
		if result.Error == "" {
			result.Error = stream.MaskURLs(err.Error())
		}
		writeJSON(w, http.StatusUnprocessableEntity, result)
	default:
		writeJSON(w, http.StatusOK, result)
	}
}
