package endtoend

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// natsSettings are the settings of one server process.
type natsSettings struct {
	Name, Dir   string
	Port, Route int
	Routes      []string
}

// natsServerProgram is the main function of a server process. It ends when its standard input is
// closed, which happens when its parent ends.
func natsServerProgram(text string) int {
	var s natsSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := &server.Options{
		ServerName: s.Name, Host: "127.0.0.1", Port: s.Port, JetStream: true, StoreDir: s.Dir,
		NoLog: true, NoSigs: true,
		Cluster: server.ClusterOpts{Name: "trio", Host: "127.0.0.1", Port: s.Route},
	}
	for _, r := range s.Routes {
		u, err := url.Parse(r)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		o.Routes = append(o.Routes, u)
	}
	srv, err := server.NewServer(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	srv.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
