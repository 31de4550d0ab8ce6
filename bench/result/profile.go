package result

import (
	"encoding/json"
	"errors"
	"os"
)

// Share is how much of a profile's processor time something took.
type Share struct {
	Of    string  `json:"of"`
	Share float64 `json:"share"`
}

// Profile is what a profile of a workload says, the largest share first.
type Profile struct {
	Time   string  `json:"time"`
	Shares []Share `json:"shares"`
}

// Profiles are those that are kept, by workload.
type Profiles map[string]Profile

// ReadProfiles reads them; a file that is not there holds none.
func ReadProfiles(path string) (Profiles, error) {
	all := Profiles{}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// Write writes them all.
func (p Profiles) Write(path string) error {
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
