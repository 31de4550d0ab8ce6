package web

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

const maxBytes = 200_000 // of all files

func TestFiles(t *testing.T) {
	total := 0
	outside := regexp.MustCompile(`(?:src|href)="(?:https?:)?//|url\(|@import|from "https?:`)
	inline := regexp.MustCompile(`(?i)<script>|\son[a-z]+="|\sstyle="|<style|innerHTML|insertAdjacentHTML|document\.write|\beval\(`)
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		total += len(text)
		if strings.Contains(name, "uplot") {
			return nil
		}
		if found := outside.Find(text); found != nil {
			t.Errorf("%s loads from elsewhere: %s", name, found)
		}
		if found := inline.Find(text); found != nil {
			t.Errorf("%s has what the policy forbids: %s", name, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > maxBytes {
		t.Errorf("the pages have %d bytes, more than %d", total, maxBytes)
	}
}

func TestHandler(t *testing.T) {
	h := Handler()
	get := func(path, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	page := get("/", "")
	if page.Code != 200 || page.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("/: %d %s", page.Code, page.Header().Get("Content-Type"))
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="(/[^"#]+)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		w := get(m[1], "")
		if w.Code != 200 {
			t.Errorf("%s: %d", m[1], w.Code)
		}
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s has the policy %q", m[1], csp)
		}
	}
	again := get("/web/app.js", get("/web/app.js", "").Header().Get("ETag"))
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("an unchanged file: %d with %d bytes", again.Code, again.Body.Len())
	}
	for _, path := range []string{"/web/", "/web/index.html", "/web/../web.go", "/else"} {
		if w := get(path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
