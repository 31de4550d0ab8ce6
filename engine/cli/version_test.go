package cli

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	v := versionOf(&debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"},
			{Key: "vcs.time", Value: "2026-11-21T10:00:00Z"},
		},
	})
	if got := v.text(); !strings.HasPrefix(got, "penstock v1.2.3 (0123456789ab, changed), go1.") {
		t.Errorf("text = %q", got)
	}
	if v := versionOf(nil); v.Version != "devel" || v.Go == "" {
		t.Errorf("versionOf(nil) = %+v", v)
	}
	got := newProgram(newFake(), nil).try(t, "version", "--json")
	if got.code != exitOK || !strings.HasPrefix(got.out, `{"version":"`) || strings.Count(got.out, "\n") != 1 {
		t.Errorf("version --json = %+v", got)
	}
}

// TestVersionFlag checks that penstock --version prints the same as penstock version.
func TestVersionFlag(t *testing.T) {
	flag := newProgram(newFake(), nil).try(t, "--version")
	command := newProgram(newFake(), nil).try(t, "version")
	if flag.code != exitOK || flag.out == "" || flag != command {
		t.Errorf("--version: %+v, version: %+v", flag, command)
	}
}
