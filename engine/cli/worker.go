package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// workerFlags are the flags of `penstock worker` that are options of the source http_server.
type workerFlags struct {
	listen, format, tokenFile    string
	registry, subject, advertise string
	insecure                     bool
	slots                        int
}

func workerCommand(p *program) *cobra.Command {
	f := runFlags{stall: 5 * time.Minute}
	var w workerFlags
	cmd := &cobra.Command{
		Use:   "worker --listen ADDR CONFIG",
		Short: "Run processors and sinks for penstock on other machines",
		Long: `Worker runs a pipeline without a source. Its records come from penstock processes on
other machines, which list this one as an endpoint of their sink http. The worker
responds to a batch when every route has delivered it. Each response advertises the
number of batches that the worker can accept. Worker is short for a config with the source

    http_server: { listen: ADDR, ack: delivered }

Stop it like ` + "`penstock run`" + `. While it drains, its responses tell the senders to deliver
elsewhere.`,
		Example: `  penstock worker --listen 127.0.0.1:8080 worker.yaml
  penstock worker --listen 10.0.0.7:8080 --insecure --format ndjson worker.yaml
  penstock worker --listen 10.0.0.7:8080 --insecure --registry nats://nats:4222 worker.yaml`,
		Args: needs("the path of a config without a source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.listen == "" {
				return usagef("worker: --listen is missing; write HOST:PORT, such as 127.0.0.1:8080")
			}
			if w.tokenFile != "" { // in the config, the path would be relative to the config
				var err error
				if w.tokenFile, err = filepath.Abs(w.tokenFile); err != nil {
					return err
				}
			}
			f.source = w.source()
			return p.run(cmd, args, f)
		},
	}
	cmd.Flags().StringVar(&w.listen, "listen", "", "`HOST:PORT` for the batches of senders")
	cmd.Flags().StringVar(&w.format, "format", "lines", "of bodies: lines, ndjson, json_array")
	set := cmd.Flags()
	set.IntVar(&w.slots, "slots", 0, "batches that the sink serves at once; 0: unknown")
	set.StringVar(&w.tokenFile, "token-file", "", "`FILE` with the token that senders must have")
	set.StringVar(&w.registry, "registry", "", "`URL` of NATS servers at which senders find workers")
	set.StringVar(&w.subject, "subject", "penstock.workers", "of --registry: `SUBJECT` on which senders ask")
	set.StringVar(&w.advertise, "advertise", "", "of --registry: `HOST:PORT` for senders; default: --listen")
	set.BoolVar(&w.insecure, "insecure", false, "listen beyond loopback without TLS")
	set.BoolVar(&f.json, "json", false, "print the summary as one line of JSON")
	set.BoolVar(&f.watch, "watch", false, "reload the config when its file changes")
	set.StringVar(&f.admin, "admin", "", "admin pages, in place of the config: `HOST:PORT`, or off")
	set.StringVar(&f.logFormat, "log-format", "text", "text or json")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// source returns the source as YAML.
func (w *workerFlags) source() string {
	quote := func(s string) string {
		text, _ := json.Marshal(s) // marshaling a string cannot fail
		return string(text)
	}
	more := ""
	if w.tokenFile != "" {
		more = ", token: " + quote("${file:"+w.tokenFile+"}")
	}
	if w.registry != "" {
		more += fmt.Sprintf(", register: {url: %s, subject: %s, address: %s}",
			quote(w.registry), quote(w.subject), quote(w.advertise))
	}
	return fmt.Sprintf("http_server: {listen: %s, format: %s, ack: delivered, insecure: %t, slots: %d%s}",
		quote(w.listen), quote(w.format), w.insecure, w.slots, more)
}
