package mysql

import (
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// present returns a query that reports whether exactly n of the ledger's tables a, b and c exist,
// so that a start creates them only if they are missing. It searches the schema of the table with
// the given name.
func present(name sqltable.Name, n int64, a, b, c string) sqlspan.Statement {
	return sqlspan.Statement{SQL: `SELECT count(*) = ? FROM information_schema.tables
		WHERE table_schema = coalesce(nullif(?, ''), DATABASE()) AND table_name IN (?, ?, ?)`,
		Args: []any{n, name.Schema, a, b, c}}
}

// dialectOf returns the SQL of the ledger's tables, which are in the same schema as the data; see
// docs/formats/sql-tables.md. The epoch is a number that a new process raises to fence earlier
// processes. Each transaction holds a shared lock on the row of the epoch, and a process that
// raises the epoch waits for these locks. So a transaction of an earlier process commits before the
// epoch is raised, or never.
func (s *Sink) dialectOf(string) sqlspan.Dialect {
	return sqlspan.Dialect{
		Place: fmt.Sprintf("table %s", s.name.Beside(sqlspan.MarksTable)),
		Names: sqlspan.Beside(s.name),
		// without it, a start would need the right to create tables
		Present: present(s.name, 3, sqlspan.RoutesTable, sqlspan.MarksTable, sqlspan.SpansTable),
		Create: []string{
			`CREATE TABLE IF NOT EXISTS $routes (route varbinary(300) PRIMARY KEY, format int NOT NULL, epoch bigint NOT NULL)
				ENGINE = InnoDB`,
			`CREATE TABLE IF NOT EXISTS $marks (route varbinary(300), part varbinary(200), name text NOT NULL, num bigint NOT NULL,
				"key" varbinary(1024) NOT NULL, PRIMARY KEY (route, part)) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4`,
			`CREATE TABLE IF NOT EXISTS $spans (route varbinary(300), part varbinary(200), from_num bigint, from_key varbinary(1024),
				to_num bigint NOT NULL, to_key varbinary(1024) NOT NULL, PRIMARY KEY (route, part, from_num, from_key)) ENGINE = InnoDB`,
		},
		Bump: `INSERT INTO $routes VALUES (?, ?, 1) ON DUPLICATE KEY UPDATE epoch = epoch + 1`,
		Lock: " LOCK IN SHARE MODE",
		SetMark: `INSERT INTO $marks VALUES (?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE name = VALUES(name),
			"key" = IF(VALUES(num) > num OR VALUES(num) = num AND VALUES("key") > "key", VALUES("key"), "key"),
			num = GREATEST(num, VALUES(num))`,
		Claim: `INSERT INTO $marks VALUES (?, ?, ?, ?, ?) ` +
			`ON DUPLICATE KEY UPDATE num = num`,
		InsertSpan:    `INSERT IGNORE INTO $spans VALUES (?, ?, ?, ?, ?, ?)`,
		PresentEpochs: present(s.name, 1, sqlspan.EpochsTable, "", ""),
		CreateEpochs: `CREATE TABLE IF NOT EXISTS $epochs (route varbinary(300),
				part varbinary(200), epoch bigint NOT NULL, PRIMARY KEY (route, part))
				ENGINE = InnoDB`,
		RaiseEpoch: `INSERT INTO $epochs VALUES (?, ?, 1) ` +
			`ON DUPLICATE KEY UPDATE epoch = epoch + 1`,
	}
}
