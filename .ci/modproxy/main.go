// Command modproxy adds a module to a file:// module proxy.
//
//	modproxy PROXY MODULE VERSION TIME DIR
//
// PROXY is the folder of the proxy, and DIR that of the module. Like the go command, modproxy
// leaves out nested modules. TIME is the time of the version, in the format of RFC 3339.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: modproxy PROXY MODULE VERSION TIME DIR")
		os.Exit(2)
	}
	v := module.Version{Path: os.Args[2], Version: os.Args[3]}
	if err := add(os.Args[1], v, os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

// add writes the files of one version, as https://go.dev/ref/mod#goproxy-protocol describes them.
func add(proxy string, v module.Version, time, dir string) (err error) {
	escaped, err := module.EscapePath(v.Path)
	if err != nil {
		return err
	}
	out := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	info := fmt.Appendf(nil, "{\"Version\":%q,\"Time\":%q}\n", v.Version, time)
	for name, text := range map[string][]byte{
		v.Version + ".mod": mod, v.Version + ".info": info, "list": []byte(v.Version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(out, v.Version+".zip"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return zip.CreateFromDir(f, v, dir)
}
