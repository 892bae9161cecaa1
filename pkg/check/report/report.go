// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// formats are what New accepts; "" is text.
var formats = []string{"text", "json", "junit"}

// New returns the reporter for format: text (or empty), json or junit. live turns the live line on, color the colors.
func New(format string, out io.Writer, live, color bool) (check.Reporter, error) {
	switch format {
	case "", "text":
		return NewText(out, live, color), nil
	case "json":
		return &document{out: out, encode: encodeJSON}, nil
	case "junit":
		return &document{out: out, encode: encodeJUnit}, nil
	}
	return nil, check.Usage("unknown output %q: use one of %s", format, strings.Join(formats, ", "))
}

// document is a reporter that writes everything at the end.
type document struct {
	out    io.Writer
	encode func(io.Writer, *check.Report) error
}

func (d *document) Begin(string, []check.Check) {}
func (d *document) Start(check.Check)           {}
func (d *document) Finish(check.Result)         {}

func (d *document) End(r *check.Report) error { return d.encode(d.out, r) }

func encodeJSON(out io.Writer, r *check.Report) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
