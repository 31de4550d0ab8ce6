package cli

import (
	"testing"
	"testing/fstest"
)

func TestFollowCgroup(t *testing.T) {
	const of = "sys/fs/cgroup/"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64 // -1: not set
	}{
		{"a service", map[string]string{
			"proc/self/cgroup": "0::/system.slice/penstock.service\n",
			of + "system.slice/penstock.service/memory.max": "1000\n",
		}, 900},
		{"a limit further up", map[string]string{
			"proc/self/cgroup":        "0::/a/b/c\n",
			of + "a/memory.max":       "500\n",
			of + "a/b/memory.max":     "max\n",
			of + "a/b/c/memory.max":   "1000\n",
			of + "other/memory.max":   "10\n",
			of + "a/b/c/d/memory.max": "20\n",
		}, 450},
		{"a container", map[string]string{
			"proc/self/cgroup": "0::/\n", of + "memory.max": "1073741824\n",
		}, 966367638},
		{"outside of the container's root", map[string]string{
			"proc/self/cgroup": "0::/../../other\n", of + "memory.max": "1000\n",
		}, 900},
		{"both versions", map[string]string{
			"proc/self/cgroup":  "4:memory:/x\n0::/a\n",
			of + "a/memory.max": "1000",
		}, 900},
		{"version 1 alone", map[string]string{
			"proc/self/cgroup": "4:memory:/x\n", of + "memory.max": "1000",
		}, -1},
		{"no limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", of + "a/memory.max": "max\n",
		}, -1},
		{"damaged", map[string]string{
			"proc/self/cgroup": "0::/a\n", of + "a/memory.max": "-5\n",
		}, -1},
		{"no cgroups", nil, -1},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		got := int64(-1)
		followCgroup(root, func(limit int64) int64 {
			got = limit
			return 0
		})
		if got != c.want {
			t.Errorf("%s: limit %d, want %d", c.name, got, c.want)
		}
	}
}
