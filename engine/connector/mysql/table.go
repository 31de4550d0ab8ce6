package mysql

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// engineSQL selects the storage engine of a table, and whether the engine has transactions. A view
// has no engine.
const engineSQL = `SELECT t.engine, e.transactions FROM information_schema.tables t
	JOIN information_schema.engines e ON e.engine = t.engine
	WHERE t.table_schema = coalesce(nullif(?, ''), DATABASE()) AND t.table_name = ?`

// indexSQL selects the columns of the unique indexes of a table. Each row of the result has the
// name of the index and the name of the column. Three flags follow: the column is auto_increment,
// the column may be NULL, and the index has the whole values of the column instead of prefixes.
const indexSQL = `SELECT i.index_name, i.column_name, c.extra LIKE '%auto_increment%',
	c.is_nullable = 'YES', i.sub_part IS NULL
	FROM information_schema.statistics i LEFT JOIN information_schema.columns c
		USING (table_schema, table_name, column_name)
	WHERE table_schema = coalesce(nullif(?, ''), DATABASE()) AND table_name = ? AND i.non_unique = 0
	ORDER BY i.index_name, i.seq_in_index`

// index is a unique index of a table.
type index struct {
	name      string
	columns   []string
	automatic bool // has a column that the server numbers, and that no record fills
	nullable  bool
	partial   bool // has only the beginning of a column
}

// checkTable checks that an existing table has transactions and, in mode upsert, a unique index
// over the key. Without transactions, a repeated batch would be stored twice. Without the index,
// MySQL would add a row instead of updating one. If there is a second unique index that records
// fill (not automatic, see index), the columns of the key must be NOT NULL. checkTable also sets
// otherIndex.
func (s *Sink) checkTable(ctx context.Context, c *connection) error {
	engine, transactions := "", ""
	err := c.Run(ctx, s.tableQuery(engineSQL, nil, &engine, &transactions))
	switch {
	case err != nil || engine == "":
		return err
	case transactions != "YES":
		return fmt.Errorf("the table %s has the storage engine %s, which has no transactions; "+
			"convert it with ALTER TABLE ... ENGINE = InnoDB", s.name, engine)
	case s.o.Mode != sqltable.Upsert:
		return nil
	}
	indexes, err := s.indexes(ctx, c)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(indexes, func(i index) bool {
		return !i.partial && len(i.columns) == len(s.o.Key) &&
			!slices.ContainsFunc(s.o.Key,
				func(k string) bool { return !slices.Contains(i.columns, k) })
	})
	if own < 0 {
		return fmt.Errorf("the table %s has no unique index over the columns of `key` (%s); "+
			"create one", s.name, sqltable.QuoteAll(s.o.Key))
	}
	for i, other := range indexes {
		if i == own || other.automatic {
			continue
		}
		if indexes[own].nullable {
			return fmt.Errorf("the table %s has two unique indexes, %q and %q, and a column of "+
				"`key` (%s) may be NULL; declare the key NOT NULL", s.name, indexes[own].name,
				other.name, sqltable.QuoteAll(s.o.Key))
		}
		s.otherIndex.Store(true)
	}
	return nil
}

// indexes returns the unique indexes of the table.
func (s *Sink) indexes(ctx context.Context, c *connection) (all []index, err error) {
	var name, column string
	var numbered, nullable, whole bool
	err = c.Run(ctx, s.tableQuery(indexSQL, func() {
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, index{name: name})
		}
		i := &all[len(all)-1]
		i.columns = append(i.columns, column)
		filled := sqltable.IndexOf(s.Shape.Known().Columns, column) >= 0
		i.automatic = i.automatic || numbered && !filled
		i.nullable = i.nullable || nullable
		i.partial = i.partial || !whole
	}, &name, &column, &numbered, &nullable, &whole))
	return all, err
}
