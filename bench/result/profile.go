package result

import (
	"encoding/json"
	"errors"
	"os"
)

// Share is the share of a part of the program in the CPU time of a profile.
type Share struct {
	Of    string  `json:"of"`
	Share float64 `json:"share"`
}

// Profile is a summary of the profile of a workload. The largest share comes first.
type Profile struct {
	Time   string  `json:"time"`
	Shares []Share `json:"shares"`
}

// Profiles are the kept profiles, by workload.
type Profiles map[string]Profile

// ReadProfiles reads a file of profiles. If the file does not exist, the result is empty.
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

// Write writes all profiles.
func (p Profiles) Write(path string) error {
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
