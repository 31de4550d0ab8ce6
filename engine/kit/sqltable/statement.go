//penstock:pure

package sqltable

import (
	"fmt"
	"slices"
	"strings"
)

// CreateSQL returns a statement that creates a table unless it exists. key has the columns of the
// primary key. If key is empty, the table has no primary key. declare returns the type of a column
// in SQL, or "".
func CreateSQL(name Name, columns []Column, key []string, declare func(c Column) string) string {
	var parts []string
	for _, c := range columns {
		part := Quote(c.Name)
		if decl := declare(c); decl != "" {
			part += " " + decl
		}
		if slices.Contains(key, c.Name) {
			part += " NOT NULL"
		}
		parts = append(parts, part)
	}
	if len(key) > 0 {
		parts = append(parts, "PRIMARY KEY ("+QuoteAll(key)+")")
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s)", name, strings.Join(parts, ", "))
}

// IndexOf returns the index of the column with the given name, or -1.
func IndexOf(columns []Column, name string) int {
	return slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
}

// NamesOf quotes the names of columns and joins them with commas.
func NamesOf(columns []Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return QuoteAll(names)
}

// OnConflict returns the clause with which an INSERT replaces the row that has the same key, in
// PostgreSQL's syntax. If all columns belong to the key, the existing row is left unchanged.
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
