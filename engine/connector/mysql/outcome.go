package mysql

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

const (
	noSuchTable, noSuchColumn, unknownTable = 1146, 1054, 1109
	duplicate, lockWaited                   = 1062, 1205
	divisionByZero                          = 1365 // see insertSQL
)

// numberOf returns the server's error number, or 0 if err is not from the server.
func numberOf(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// isUsableAfter reports whether the connection is still usable after err. This is the case if the
// server has responded with err, or if err is not from the connection: it is an outcome for refused
// records, a Misconfigured, a FencedError, or an error that ends the route. A connection to a
// read-only server is not usable: after a failover, the address may belong to another server.
func isUsableAfter(err error) bool {
	switch numberOf(err) {
	case 0:
	case 1290, 1792, 1836: // read-only
		return false
	default:
		return true
	}
	_, rejected := errors.AsType[*stream.Rejected](err)
	_, split := errors.AsType[*stream.Split](err)
	_, misconfigured := errors.AsType[*stream.Misconfigured](err)
	_, fenced := errors.AsType[*stream.FencedError](err)
	return rejected || split || misconfigured || fenced || sqlspan.Ends(err) != nil
}

// outcome maps an error to the outcome that Deliver returns, based on the server's error number
// (https://mariadb.com/kb/en/mariadb-error-code-reference/,
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html):
//
//	invalid or too long values,            rejected
//	violated constraints
//	config, permissions                    misconfigured
//	anything else                          retryable: connection, deadlock, lock waits,
//	                                       resources, shutdown, a read-only server
func outcome(err error) error {
	if err == nil || sqlspan.Ends(err) != nil {
		return err
	}
	if errors.Is(err, mysql.ErrPktTooLarge) { // found before anything was sent
		return &stream.Rejected{
			Err: errors.New("the record exceeds max_allowed_packet of the server"),
		}
	}
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return err
	}
	switch e.Number {
	case divisionByZero:
		return &stream.Rejected{Err: fmt.Errorf("the row equals a row with another key in a unique "+
			"index, or an expression of the table divides by zero (%s, error %d)", e.Message, e.Number)}
	case 1048, duplicate, 1153, 1264, 1265, 1292, 1364, 1366, 1369, 1406, 1411, 1416, 1425, 1441, 1451,
		1452, 1526, 1644, 1690, 1748,
		3140, 3141, 3150, 3156, 3157, 3819, 4025, 4038:
		return &stream.Rejected{Err: fmt.Errorf("%s (error %d)", e.Message, e.Number)}
	case 1044, 1045, 1049, noSuchColumn, 1064, unknownTable, 1136, 1142, 1143, noSuchTable, 1227,
		1231, 1288, 1348, 1356, 1471, 1698, 3750:
		return &stream.Misconfigured{Err: err}
	}
	return err
}

// isDefinition reports whether err, from a CREATE TABLE, means that the server refuses the
// statement and a retry would not help. For example, the user has no permission.
func isDefinition(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && string(e.SQLState[:2]) == "42" && !transient(err)
}

// transient reports whether Load should retry after err.
func transient(err error) bool {
	if n := numberOf(err); n != 0 {
		return slices.Contains([]uint16{1040, 1053, 1080, 1158, 1159, 1160, 1161, 1203, lockWaited,
			1213, 1226, 1290, 1317, 1836, 1927}, n)
	}
	return sqldriver.IsDisconnected(err) || errors.Is(err, mysql.ErrInvalidConn)
}
