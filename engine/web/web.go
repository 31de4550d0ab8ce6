// Package web has the dashboard of a running engine: HTML pages that show its state, and offer
// actions such as the replay of dead letters. The pages use the API of the admin address.
//
// The pages are plain HTML, CSS and ES modules, without a build step. They contain no data and load
// nothing from other origins. The charts are drawn by uPlot. Its code and its licence are in the
// directory static.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var files embed.FS

// policy allows only content from the same origin. It forbids inline scripts and styles, frames and
// forms.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page is one embedded file.
type page struct {
	text, kind, tag string
}

// Handler serves the dashboard at / and its files below /web/.
func Handler() http.Handler {
	pages := map[string]page{}
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		at := "/web/" + strings.TrimPrefix(name, "static/")
		if at == "/web/index.html" {
			at = "/"
		}
		pages[at] = page{string(text), kindOf(name), `"` + hex.EncodeToString(sum[:8]) + `"`}
		return nil
	})
	if err != nil {
		panic("web: BUG: " + err.Error()) // cannot happen, because the files are embedded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", p.kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", p.tag)
		if r.Header.Get("If-None-Match") == p.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write([]byte(p.text)) // the client may have disconnected
	})
}

// kinds are the content types by file extension. They do not depend on the MIME table of the
// system.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

func kindOf(name string) string {
	if kind := kinds[path.Ext(name)]; kind != "" {
		return kind
	}
	if kind := mime.TypeByExtension(path.Ext(name)); kind != "" {
		return kind
	}
	return "application/octet-stream"
}
