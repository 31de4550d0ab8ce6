package main

import (
	"bufio"
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
)

const toSQLite = fromSpool + "    sink: { sqlite: { path: ./out.db, table: lines, columns: " +
	"[message] } }\n"

// insertedBare measures the limit for SQLite: a program that only inserts each line into a table.
func insertedBare(e *env, in load.Input) (measure, error) {
	path := filepath.Join(e.dir, "bare.db")
	removeSQLite(path)
	defer removeSQLite(path)
	return e.limit(in, "sqlite", path)
}

func removeSQLite(path string) {
	for _, part := range []string{"", "-wal", "-shm"} {
		os.Remove(path + part)
	}
}

// intoSQLite runs penstock with a new database and counts the rows.
func intoSQLite(e *env, in load.Input) (measure, error) {
	j, err := e.job(in, toSQLite)
	if err != nil {
		return measure{}, err
	}
	r, _, err := j.once()
	m := of(r, in)
	if err != nil {
		return m, err
	}
	return m, m.countRows(j.path("out.db"))
}

// countRows counts the records in a database by their marks, which contain the number of the line.
func (m *measure) countRows(path string) error {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query("SELECT message FROM lines")
	if err != nil {
		return err
	}
	defer rows.Close()
	marks := load.NewMarks(m.records)
	var text sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&text); err != nil {
			return err
		}
		marks.Add(text)
	}
	m.take(marks)
	return rows.Err()
}

// server is a PostgreSQL server that a script has started in the scratch folder.
type server struct{ recipes, dir, url string }

// recipes returns the folder of the scripts that start and stop the database server.
// PENSTOCK_RECIPES names this folder. If the variable is not set, it is the folder recipes of this
// module.
func recipes() (string, error) {
	return filepath.Abs(cmp.Or(os.Getenv("PENSTOCK_RECIPES"), "recipes"))
}

// noPostgres returns the reason why no server can be started, or "".
func noPostgres() string {
	// On Debian, this program is not on the PATH.
	installed, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if _, missing := exec.LookPath("initdb"); missing != nil && len(installed) == 0 && err == nil {
		return "PostgreSQL's server is not installed: there is no initdb"
	}
	return missing("psql")
}

// postgres returns the server. It starts the server at its first call.
func (e *env) postgres() (*server, error) {
	if s := e.server.Load(); s != nil && s.url != "" {
		return s, nil
	}
	if why := noPostgres(); why != "" {
		return nil, errors.New(why)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	s := &server{dir: filepath.Join(e.dir, "postgres")}
	if s.recipes, err = recipes(); err != nil {
		return nil, err
	}
	e.server.Store(s) // before it runs, so that a signal during its start stops it
	r, err := proc.Do(filepath.Join(s.recipes, "postgres", "start.sh"), s.dir, port)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	ready, ok := strings.CutPrefix(strings.TrimSpace(string(r.Out)), "ready ")
	if !ok {
		return nil, fmt.Errorf("start PostgreSQL: it says %q, not where it is ready", r.Out)
	}
	s.url = ready
	return s, nil
}

func (s *server) stop() error {
	out, err := exec.Command(filepath.Join(s.recipes, "stop.sh"), s.dir, "KILL").CombinedOutput()
	if err != nil {
		return fmt.Errorf("stop PostgreSQL: %w: %s", err, out)
	}
	return nil
}

// do executes statements on the server.
func (s *server) do(statements ...string) error {
	args := []string{"-q", "-d", s.url}
	for _, one := range statements {
		args = append(args, "-c", one)
	}
	_, err := proc.Do("psql", args...)
	return err
}

// columnsOf declares the columns of the table for an access log, in the order in which the
// processor parse returns the fields.
const columnsOf = `host text, identity text, "user" text, timestamp text, method text, ` +
	`path text, protocol text, ` +
	`status bigint, size bigint, referrer text, agent text`

// renew creates the table again. It also forces a checkpoint of the database server, so that one is
// less likely during the measurement.
func (s *server) renew(columns string) error {
	return s.do("SET client_min_messages = error; DROP TABLE IF EXISTS lines",
		"CREATE TABLE lines ("+columns+")", "CHECKPOINT")
}

// copiedByPsql measures the command \copy of psql. The rows are converted to the text format of
// this command beforehand.
func copiedByPsql(e *env, in load.Input) (measure, error) {
	s, err := e.postgres()
	if err != nil {
		return measure{}, err
	}
	rows := in.Path + ".rows"
	if _, err := os.Stat(rows); err != nil {
		if err := writeRows(in.Path, rows); err != nil {
			return measure{}, err
		}
	}
	if err := s.renew(columnsOf); err != nil {
		return measure{}, err
	}
	r, err := proc.Do("psql", "-q", "-d", s.url, "-c", `\copy lines from '`+rows+`'`)
	return of(r, in), err
}

// intoPostgres runs penstock with an empty table and counts the rows.
func intoPostgres(e *env, in load.Input) (measure, error) {
	j, s, err := postgresJob(e, in)
	if err != nil {
		return measure{}, err
	}
	r, _, err := j.once()
	m := of(r, in)
	if err != nil {
		return m, err
	}
	return m, s.count(&m)
}

// postgresJob returns a job that writes to an empty table. Each run has its own ledger, because the
// server keeps the ledgers of earlier runs.
func postgresJob(e *env, in load.Input) (*job, *server, error) {
	config, err := intoTable(e)
	if err != nil {
		return nil, nil, err
	}
	j, err := e.job(in, config)
	return j, e.server.Load(), err
}

// intoTable creates an empty table on the server. It returns a config that writes to the table.
func intoTable(e *env) (string, error) {
	s, err := e.postgres()
	if err != nil {
		return "", err
	}
	if err := s.renew(columnsOf); err != nil {
		return "", err
	}
	e.ledgers++
	sink := fmt.Sprintf("{ postgres: { url: %q, table: lines, on_new_field: ignore, ledger: "+
		"bench/%d } }", s.url, e.ledgers)
	return parsing("combined", sink), nil
}

// count counts the records in the table by their marks, which contain the number of the line.
func (s *server) count(m *measure) error {
	cmd := exec.Command("psql", "-q", "-d", s.url, "-c",
		`\copy (SELECT agent FROM lines) to stdout`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	marks := load.NewMarks(m.records)
	err = marks.AddFrom(out)
	m.take(marks)
	return errors.Join(err, cmd.Wait())
}

// writeRows converts access log lines to the text format of COPY.
func writeRows(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	re := regexp.MustCompile(`^(\S+) (\S+) (\S+) \[([^\]]+)\] "(\S+) (\S+) (\S+)" (\d+) (\S+) ` +
		`"([^"]*)" "(.*)"$`)
	plain := strings.NewReplacer(`\"`, `"`, `\\`, `\`)
	w := bufio.NewWriter(out)
	scan := bufio.NewScanner(in)
	for scan.Scan() {
		groups := re.FindSubmatch(scan.Bytes())
		if groups == nil {
			return fmt.Errorf("the line %q is of another form", scan.Bytes())
		}
		for i, group := range groups[1:] {
			if i > 0 {
				w.WriteByte('\t')
			}
			value := `\N`
			if string(group) != "-" {
				value = strings.ReplaceAll(plain.Replace(string(group)), `\`, `\\`)
			}
			w.WriteString(value)
		}
		w.WriteByte('\n')
	}
	return errors.Join(scan.Err(), w.Flush(), out.Close())
}
