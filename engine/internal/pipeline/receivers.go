package pipeline

import (
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/reread"
	"github.com/penstock-io/penstock/stream"
)

// receiver is a receiver of the deliveries of a sink such as notify. With its token, it may query
// its own deliveries at the admin address.
type receiver struct {
	Token string   `json:"token"`
	Hosts []string `json:"hosts"`
}

// leastToken is the minimum length of a receiver's token. Shorter tokens could be guessed.
const leastToken = 16

// receivers are the receivers in the file admin.delivery_tokens, by name.
type receivers struct {
	file reread.File[map[string]receiver]
}

// openReceivers reads the file at path.
func openReceivers(path string) (*receivers, error) {
	r := &receivers{}
	r.file.Path, r.file.Shape = path, "an object of objects with token and hosts"
	all, err := r.file.Read()
	if err != nil {
		return nil, fmt.Errorf("admin: delivery_tokens: %w", err)
	}
	names := make(map[string]string, len(all))
	for name, one := range all {
		if len(one.Token) < leastToken {
			return nil, fmt.Errorf(
				"admin: delivery_tokens: the token of %q has %d bytes; write at least %d",
				name, len(one.Token), leastToken,
			)
		}
		if other, twice := names[one.Token]; twice {
			return nil, fmt.Errorf(
				"admin: delivery_tokens: %q and %q have the same token", min(name, other),
				max(name, other),
			)
		}
		names[one.Token] = name
	}
	return r, nil
}

// of returns the receiver with the given token. ok is false if there is no such receiver, or if the
// file cannot be read. of compares the token with all tokens, so that its running time does not
// depend on which one matches.
func (r *receivers) of(token string) (owner stream.DeliveryOwner, ok bool) {
	if len(token) < leastToken {
		return owner, false
	}
	all, err := r.file.Read()
	if err != nil {
		return owner, false
	}
	for name, one := range all {
		if subtle.ConstantTimeCompare([]byte(one.Token), []byte(token)) != 1 {
			continue
		}
		owner, ok = stream.DeliveryOwner{Name: name}, true
		for _, host := range one.Hosts {
			owner.Hosts = append(owner.Hosts, strings.ToLower(host))
		}
	}
	return owner, ok
}
