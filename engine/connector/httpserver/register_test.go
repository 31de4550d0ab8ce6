package httpserver

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/natsaccess"
)

func TestRegisterOptions(t *testing.T) {
	servers := natsaccess.Options{URL: "nats://127.0.0.1:4222"}
	for want, r := range map[string]Register{
		"register.url":          {Subject: "workers"},
		"register.subject":      {Options: servers},
		`is "a.*", want`:        {Options: servers, Subject: "a.*"},
		`is "host", want`:       {Options: servers, Subject: "a", Address: "host"},
		`"0.0.0.0:80" is every`: {Options: servers, Subject: "a"},
	} {
		if err := r.check("0.0.0.0:80"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	for _, r := range []Register{
		{}, {Options: servers, Subject: "a", Address: "worker-1:80"},
	} {
		if err := r.check("0.0.0.0:80"); err != nil {
			t.Error(err)
		}
	}
	one := Register{Options: servers, Subject: "a"}
	if err := one.check("10.0.0.1:80"); err != nil {
		t.Error(err)
	}
}
