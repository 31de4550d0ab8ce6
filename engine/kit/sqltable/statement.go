//penstock:pure

package sqltable

import (
	"fmt"
	"slices"
	"strings"
)

// CreateSQL makes a table where there is none, with a primary key of the columns named in key;
// none: without. declare gives the type of a column in the database's words, "" for none.
func CreateSQL(name Name, columns []Column, key []string, declare func(c Column, inKey bool) string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "CREATE TABLE IF NOT EXISTS %s (", name)
	for i, c := range columns {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(Quote(c.Name))
		inKey := slices.Contains(key, c.Name)
		if decl := declare(c, inKey); decl != "" {
			out.WriteString(" " + decl)
		}
		if inKey {
			out.WriteString(" NOT NULL")
		}
	}
	if len(key) > 0 {
		fmt.Fprintf(&out, ", PRIMARY KEY (%s)", QuoteAll(key))
	}
	out.WriteString(")")
	return out.String()
}

// NamesOf quotes the names of columns and joins them by commas.
func NamesOf(columns []Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return QuoteAll(names)
}

// OnConflict is how an INSERT of the columns replaces the row of the same key, where the database
// takes PostgreSQL's words for it; a row of nothing but its key stays as it is.
func OnConflict(columns []Column, key []string) string {
	var set []string
	for _, c := range columns {
		if !slices.Contains(key, c.Name) {
			set = append(set, Quote(c.Name)+"=excluded."+Quote(c.Name))
		}
	}
	do := "NOTHING"
	if len(set) > 0 {
		do = "UPDATE SET " + strings.Join(set, ",")
	}
	return "ON CONFLICT (" + QuoteAll(key) + ") DO " + do
}
