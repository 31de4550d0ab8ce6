package pipeline

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

func TestLogMasksURLs(t *testing.T) {
	const secret, at = "hunter2", "http://me:hunter2@h/in?token=hunter2"
	var out bytes.Buffer
	log := slog.New(maskingHandler{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})})
	failed := &url.Error{Op: "Post", URL: at, Err: errors.New("refused")}
	log.With("endpoint", at).WithGroup("g").Debug("sent to "+at, "error", failed, "n", 7,
		slog.Group("in", "url", at), "urls", []string{at})
	got := out.String()
	if strings.Contains(got, secret) || strings.Count(got, "http://***@h/in?token=***") != 5 ||
		!strings.Contains(got, "g.n=7") {
		t.Errorf("log line: %s", got)
	}
}
