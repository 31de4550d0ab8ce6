package cli

import "testing"

// TestEscaped checks that terminal control characters are escaped and readable text is unchanged.
func TestEscaped(t *testing.T) {
	for in, want := range map[string]string{
		`plain "quoted" äß 漢`:            `plain "quoted" äß 漢`,
		`\"`:                             `\\"`,
		"a\x1b[31mb\r\n\t\x00\x7f\u009b": `a\x1b[31mb\r\n\t\x00\x7f\u009b`,
		"\xff\xc3(":                      `\xff\xc3(`,
		"\u202egnp.exe\u200b\ufeff":      `\u202egnp.exe\u200b\ufeff`,
		`C:\n`:                           `C:\\n`,
		"\ufffd":                         "\ufffd",
	} {
		if got := escaped(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
}
