// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// TestPanicOfStep proves that a fault in one part of an archive leaves the others in it, and that the manifest says what is missing and why.
func TestPanicOfStep(t *testing.T) {
	var out bytes.Buffer
	d := &dump{archive: newArchive(&out, "x", time.Now(), 1<<20)}
	for _, step := range []func(context.Context) error{
		func(context.Context) error { return d.add("one", []byte("1"), false) },
		func(context.Context) error { panic("password=hunter2") },
		func(context.Context) error { return d.add("two", []byte("2"), false) },
	} {
		if err := d.take(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	m := d.manifest
	if len(m.Files) != 2 || len(m.Missing) != 1 || !strings.Contains(m.Missing[0].Reason, "sysdump/panic_test.go:") || strings.Contains(m.Missing[0].Reason, "hunter2") {
		t.Errorf("got %+v", m)
	}
}
