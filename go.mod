module github.com/penstock-io/penstock

go 1.26
