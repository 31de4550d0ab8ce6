package endtoend

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// node is a directory with the logs of containers, as kubelet and containerd lay them out.
type node struct {
	t   *testing.T
	dir string
}

// log appends lines to the log file of a container. If the file or its symlink is missing, log
// creates it.
func (n node) log(namespace, pod, container string, lines ...string) (path string) {
	n.t.Helper()
	path = filepath.Join(n.dir, "pods", namespace+"_"+pod+"_6f1c-77", container, "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		n.t.Fatal(err)
	}
	links := filepath.Join(n.dir, "containers")
	if err := os.MkdirAll(links, 0o755); err != nil {
		n.t.Fatal(err)
	}
	name := pod + "_" + namespace + "_" + container + "-" + strings.Repeat("0a", 32) + ".log"
	link := filepath.Join(links, name)
	if err := os.Symlink(path, link); err != nil && !os.IsExist(err) {
		n.t.Fatal(err)
	}
	return path
}

// guideConfigs returns the configs of the guide for Kubernetes.
func guideConfigs(t *testing.T) []string {
	t.Helper()
	text := string(read(t, filepath.Join("..", "..", "..", "docs", "guides", "kubernetes.md")))
	var configs []string
	for _, block := range strings.Split(text, "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		configs = append(configs, block)
	}
	if len(configs) != 2 {
		t.Fatalf("the guide has %d configs, want 2", len(configs))
	}
	return configs
}

// TestKubernetes runs the configs of docs/guides/kubernetes.md on a directory tree like that of a
// node, before and after a log rotation. Each message of a container must arrive once.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	for i, config := range guideConfigs(t) {
		var mu sync.Mutex
		var got []map[string]any
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for lines := json.NewDecoder(r.Body); ; {
				var record map[string]any
				if err := lines.Decode(&record); err == io.EOF {
					return
				} else if err != nil {
					t.Errorf("body: %v", err)
					return
				}
				mu.Lock()
				got = append(got, record)
				mu.Unlock()
			}
		}))
		dir := t.TempDir()
		n := node{t, filepath.Join(dir, "log")}
		path := write(t, filepath.Join(dir, "penstock.yaml"), strings.NewReplacer("/var/log", n.dir,
			"/var/lib/penstock", dir, "http://logs.monitoring.svc:8080", server.URL,
			"0.0.0.0:7070", "127.0.0.1:0", "${PENSTOCK_ADMIN_TOKEN}", "token").Replace(config))
		received := func() (messages []string) {
			once(t, path)
			mu.Lock()
			defer mu.Unlock()
			for _, r := range got {
				messages = append(messages, r["stream"].(string)+" "+r["message"].(string))
			}
			slices.Sort(messages)
			return messages
		}
		log := n.log("default", "web-1", "nginx", "2026-11-24T04:00:00Z stdout F hello",
			"2026-11-24T04:00:01Z stdout P in two ", "2026-11-24T04:00:01Z stderr F an error",
			"2026-11-24T04:00:02Z stdout F pieces")
		n.log("kube-system", "dns", "coredns", "2026-11-24T04:00:00Z stdout F ready")
		want := []string{"stderr an error", "stdout hello", "stdout in two pieces", "stdout ready"}
		if messages := received(); !slices.Equal(messages, want) {
			t.Errorf("config %d: %q, want %q", i, messages, want)
		}
		for _, r := range got {
			origin, _ := r["file"].(string)
			named := r["namespace"] == "kube-system" && r["pod"] == "dns" &&
				r["container"] == "coredns" || strings.Contains(origin, "dns_kube-system_coredns-")
			if named != (r["message"] == "ready") {
				t.Errorf("config %d: record %v", i, r)
			}
		}
		n.log("default", "web-1", "nginx", "2026-11-24T04:00:03Z stdout F before the rotation")
		if strings.Contains(config, "symlinks: follow") { // rotated files are not found later
			received()
		}
		if err := os.Rename(log, log+".20261124-040003"); err != nil {
			t.Fatal(err)
		}
		n.log("default", "web-1", "nginx", "2026-11-24T04:00:04Z stdout F after it")
		want = append(want, "stdout after it", "stdout before the rotation")
		slices.Sort(want)
		if messages := received(); !slices.Equal(messages, want) {
			t.Errorf("config %d after a rotation: %q, want %q", i, messages, want)
		}
		server.Close()
	}
}
