package mysql

import "database/sql/driver"

// Connector returns the connector of the sink's sessions.
func (s *Sink) Connector() driver.Connector { return s.connector }
