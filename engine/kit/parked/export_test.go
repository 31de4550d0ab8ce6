package parked

// Path returns the path of the file.
func (s *Store) Path() string { return s.o.Path }
