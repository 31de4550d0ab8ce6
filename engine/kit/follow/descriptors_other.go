//go:build !unix

package follow

// descriptorLimit returns how many files the process may open, 0 if that is not known.
func descriptorLimit() int { return 0 }
