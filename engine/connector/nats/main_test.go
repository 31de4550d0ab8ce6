package nats_test

import (
	"os"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

func TestMain(m *testing.M) { os.Exit(connectortest.RunWaiting(m)) }
