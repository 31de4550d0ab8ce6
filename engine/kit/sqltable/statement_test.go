package sqltable

import "testing"

func TestStatements(t *testing.T) {
	name := Name{Schema: "s", Table: `a"b`}
	columns := []Column{{Name: "k"}, {Name: "v", Type: Integer}, {Name: "any", Type: Number}}
	declare := func(c Column) string {
		switch {
		case c.Name == "k":
			return "varchar"
		case c.Type == Integer:
			return "bigint"
		}
		return ""
	}
	for _, c := range []struct{ got, want string }{
		{CreateSQL(name, columns, []string{"k"}, declare),
			`CREATE TABLE IF NOT EXISTS "s"."a""b" ("k" varchar NOT NULL, "v" bigint, "any", ` +
				`PRIMARY KEY ("k"))`},
		{CreateSQL(Name{Table: "t"}, columns[1:2], nil, declare),
			`CREATE TABLE IF NOT EXISTS "t" ("v" bigint)`},
		{NamesOf(columns), `"k","v","any"`},
		{OnConflict(columns, []string{"k", "v"}),
			`ON CONFLICT ("k","v") DO UPDATE SET "any"=excluded."any"`},
		{OnConflict(columns[:1], []string{"k"}), `ON CONFLICT ("k") DO NOTHING`},
	} {
		if c.got != c.want {
			t.Errorf("%s\nwant %s", c.got, c.want)
		}
	}
}
