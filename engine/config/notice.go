package config

import (
	"errors"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// remark runs note. The errors that note records in l become notices. Notices do not make a config
// invalid.
func remark(l *loader, note func()) {
	before := len(l.errs)
	note()
	l.notices = append(l.notices, l.errs[before:]...)
	l.errs = l.errs[:before]
}

// remarksOf records the notices of a component about its options, which are valid (see
// [stream.Noticer]).
func remarksOf(l *loader, u Use, key, options *yaml.Node) {
	noticer, ok := u.Options.(stream.Noticer)
	if !ok {
		return
	}
	if notices := noticer.Notices(); len(notices) > 0 {
		remark(l, func() { l.refused(errors.Join(notices...), u.Component.Name, key, options) })
	}
}
