package limit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
)

// encodingJSON parses each line into a map, adds a member, removes one, and writes the result to
// another file. It uses one goroutine.
func encodingJSON(from, to string) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w := bufio.NewWriterSize(out, readSize)
	err = eachLine(from, func(line []byte) error {
		var members map[string]any
		if err := json.Unmarshal(line, &members); err != nil {
			return err
		}
		members["dc"] = "eu-1"
		delete(members, "level")
		text, err := json.Marshal(members)
		if err != nil {
			return err
		}
		w.Write(text)
		return w.WriteByte('\n')
	})
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Close()
}

// matchLines matches each line with a regular expression and finds the positions of its groups. It
// uses one goroutine and writes no file.
func matchLines(from, pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	matched := 0
	err = eachLine(from, func(line []byte) error {
		if re.FindSubmatchIndex(line) != nil {
			matched++
		}
		return nil
	})
	fmt.Println(matched)
	return err
}
