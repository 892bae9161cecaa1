// SPDX-License-Identifier: Apache-2.0

package traceparent

import (
	"strings"
	"testing"
)

// TestParse: a traceparent comes back as it was, and anything else is no context.
func TestParse(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if c := Parse(good); !c.Valid() || !c.Sampled || c.String() != good {
		t.Errorf("%q became %q", good, c)
	}
	if c := Parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-further"); !c.Valid() || c.Sampled {
		t.Errorf("a later version with more fields became %+v", c)
	}
	for _, bad := range []string{
		"", "-", "---", good[:54], good + "0", good + "-more", strings.ToUpper(good), "ff" + good[2:],
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e47xx-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-zz",
	} {
		if c := Parse(bad); c.Valid() || c.String() != "" {
			t.Errorf("%q became %q", bad, c)
		}
	}
}

// FuzzParse: whatever a client sends, the result is none or a context that comes back as itself.
func FuzzParse(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, text string) {
		if c := Parse(text); c.Valid() && Parse(c.String()) != c {
			t.Errorf("%q became %q", text, c)
		}
	})
}

// TestContext: a context hands on what it was given, and no context that is none.
func TestContext(t *testing.T) {
	c := Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if got := From(With(t.Context(), c)); got != c {
		t.Errorf("%q became %q", c, got)
	}
	if ctx := With(t.Context(), Context{}); ctx != t.Context() || From(ctx).Valid() {
		t.Errorf("none became %q", From(ctx))
	}
}
