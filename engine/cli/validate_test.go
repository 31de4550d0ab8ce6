package cli

import (
	"strings"
	"testing"
)

func TestValidatePrintsThePlan(t *testing.T) {
	path := testdata(t, "validate.golden")
	inFolder(t)
	p := newProgram(newFake(), nil)
	text, asJSON := p.try(t, "validate", "penstock.yaml"), p.try(t, "validate", "--json", "penstock.yaml")
	golden(t, path, text.out+"---- json\n"+asJSON.out)
	if text.code != exitOK || asJSON.code != exitOK || text.stderr+asJSON.stderr != "" {
		t.Errorf("%+v\n%+v", text, asJSON)
	}
	if strings.Contains(text.out+asJSON.out, "hunter2") {
		t.Error("the plan shows a secret")
	}
}
