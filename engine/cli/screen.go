package cli

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen redraws a few lines at the end of a terminal. It writes other output, such as logs, above
// these lines. It is safe for concurrent use.
type screen struct {
	width func() int

	mu    sync.Mutex // guards the fields below; held during writes to the terminal
	w     io.Writer
	drawn []string
}

// terminal returns a screen if w is a terminal that can be redrawn, else nil.
func terminal(w io.Writer) *screen {
	f := terminalFile(w)
	if f == nil || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &screen{w: w, width: func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}}
}

// terminalFile returns the file of the stdout or stderr w if it is a terminal, else nil.
func terminalFile(w io.Writer) *os.File {
	switch out := w.(type) {
	case *output:
		w = out.w
	case *standardOutput:
		w = out.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// Write implements io.Writer. It writes p above the drawn lines.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.erased() + string(p)
	if len(s.drawn) > 0 && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	s.write(text + s.text()) // dropped as a whole or not at all, so that drawn lines stay in place
	return len(p), nil
}

// write writes text to the terminal. It returns false if the terminal is blocked and has not
// accepted the text. If the terminal is closed, write drops the text and returns true.
func (s *screen) write(text string) bool {
	if out, ok := s.w.(*output); ok {
		return out.offer([]byte(text))
	}
	_, _ = io.WriteString(s.w, text)
	return true
}

// draw replaces the drawn lines. It cuts lines that are wider than the terminal, because a wrapped
// line could not be erased.
func (s *screen) draw(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if out, ok := s.w.(*output); ok && len(lines) > 0 && out.blocked() {
		return // the next drawing replaces this one
	}
	text, before := s.erased(), s.drawn
	width := s.width()
	s.drawn = nil
	for _, line := range lines {
		s.drawn = append(s.drawn, cutTo(line, width-1))
	}
	if !s.write(text + s.text()) {
		s.drawn = before
	}
}

// keep ends the drawing and leaves the drawn lines on the terminal.
func (s *screen) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn = nil
}

func (s *screen) text() string {
	if len(s.drawn) == 0 {
		return ""
	}
	return strings.Join(s.drawn, "\n") + "\n"
}

// erased returns the control sequence that moves to the first drawn line and erases everything from
// there on. It returns "" if no line is drawn.
func (s *screen) erased() string {
	if len(s.drawn) == 0 {
		return ""
	}
	return strings.Repeat("\x1b[A", len(s.drawn)) + "\r\x1b[J"
}

func cutTo(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	return string(runes[:max(0, width-1)]) + "…"
}

// bar draws a share from 0 to 1.
func bar(share float64, width int) string {
	full := int(min(max(share, 0), 1)*float64(width) + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
