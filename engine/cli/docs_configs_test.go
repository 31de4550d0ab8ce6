package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/connector/all"
)

var (
	yamlBlock   = regexp.MustCompile("(?sm)^ *```yaml\n(.*?)^ *```")
	topKey      = regexp.MustCompile(`(?m)^([a-z_]+):`)
	secretFile  = regexp.MustCompile(`\$\{file:([^}]*)\}`)
	authority   = regexp.MustCompile(`(?m)^ *tls: \{ ca:.*\n`)
	certificate = regexp.MustCompile(`tls: \{ cert:.*`)
)

// leastConfigs is the minimum number of configs on all pages.
const leastConfigs = 50

// TestDocsConfigsAreValid checks the YAML on all pages. A part of a config, such as `sink:` with
// its options, is checked in a pipeline that has the other parts.
func TestDocsConfigsAreValid(t *testing.T) {
	t.Setenv("PENSTOCK_ADMIN_TOKEN", "token-of-the-admin-pages")
	checked := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
				full, ok := wholeConfig(m[1])
				// The source and sink `redis_list` are written in the guide that configures them.
				if !ok || strings.Contains(full, "redis_list:") {
					continue
				}
				checked++
				o := config.LoadOptions{Components: all.Components()}
				if _, err := config.Parse("penstock.yaml", []byte(full), o); err != nil {
					t.Errorf("%s: %v\nin:\n%s", page, err, full)
				}
			}
		}
	}
	if checked < leastConfigs {
		t.Errorf("found %d configs, want %d or more: their form has changed", checked,
			leastConfigs)
	}
}

// wholeConfig completes a part of a config. It returns false if the text is not a part of a
// pipeline or of the top level.
func wholeConfig(part string) (string, bool) {
	part = withoutFiles(dedent(part))
	keys := map[string]bool{}
	for _, m := range topKey.FindAllStringSubmatch(part, -1) {
		keys[m[1]] = true
	}
	if keys["pipelines"] {
		return part, true
	}
	if keys["admin"] || keys["telemetry"] || keys["state"] {
		return part + "\npipelines: { p: { source: stdin, sink: drop } }\n", true
	}
	if !keys["source"] && !keys["sink"] && !keys["processors"] {
		return "", false
	}
	if !keys["source"] {
		part += "\nsource: stdin\n"
	}
	if !keys["sink"] {
		part += "\nsink: drop\n"
	}
	if !keys["processors"] && !keys["source"] {
		part += "\nprocessors: [{ parse: { format: json } }]\n"
	}
	return "pipelines:\n  p:\n" + indent(part), true
}

// withoutFiles replaces the parts of a config that read files.
func withoutFiles(part string) string {
	part = secretFile.ReplaceAllString(part, "text-of-$1")
	part = authority.ReplaceAllString(part, "")
	return certificate.ReplaceAllString(part, "insecure: true")
}

// dedent removes the indentation of the least indented line from all lines.
func dedent(text string) string {
	least := len(text)
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			least = min(least, len(line)-len(strings.TrimLeft(line, " ")))
		}
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(line[min(least, len(line)-1):])
	}
	return out.String()
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
