// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockIsExclusiveAndSurvivesRemoval(t *testing.T) {
	l, err := NewHome(t.TempDir(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lock(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), `"dev"`) {
		t.Errorf("second lock = %v, want ErrBusy", err)
	}
	// Down removes the file while it holds the lock; the next command creates a
	// new one.
	if err := os.Remove(l.LockFile()); err != nil {
		t.Fatal(err)
	}
	unlock()
	unlock, err = l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestHalfWrittenState(t *testing.T) {
	for name, content := range map[string]string{"no file": "", "cut off": `{"stateVersion": 1, "na`, "empty object": "{}"} {
		t.Run(name, func(t *testing.T) {
			l, err := NewHome(t.TempDir(), "dev")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(l.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if content != "" {
				if err := os.WriteFile(l.StateFile(), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var r Record
			if err := l.ReadState(&r, &r); !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "fairlead down --name dev") {
				t.Errorf("readState = %v, want ErrIncomplete and what to do", err)
			}
		})
	}
	var r Record
	l, err := NewHome(t.TempDir(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.ReadState(&r, &r); !errors.Is(err, ErrNotFound) {
		t.Errorf("readState of nothing = %v, want ErrNotFound", err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(l.StateFile(), Record{Version: stateVersion + 1, Name: "dev"}); err != nil {
		t.Fatal(err)
	}
	if err := l.ReadState(&r, &r); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("state of a newer version: %v", err)
	}
}

func TestNoSpace(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "not", "there", "yet")
	if err := CheckFree(missing, 1<<62, OtherDisk); !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "XDG_STATE_HOME") {
		t.Errorf("checkFree = %v, want ErrNoSpace and what to do", err)
	}
	if err := CheckFree(missing, 1, OtherDisk); err != nil {
		t.Errorf("checkFree of one byte: %v", err)
	}
}

// Two clusters cannot have the same name: the first provider that claims it has
// it.
func TestOneNameOneProvider(t *testing.T) {
	h, err := NewHome(t.TempDir(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	if has, err := h.Provider(); has != "" || err != nil {
		t.Errorf("nothing there: %q, %v", has, err)
	}
	if err := h.CheckProvider(Kind); err != nil {
		t.Errorf("nothing there: %v", err)
	}
	if err := h.Claim(Kind); err != nil {
		t.Fatal(err)
	}
	if has, err := h.Provider(); has != Kind || err != nil {
		t.Errorf("claimed: %q, %v", has, err)
	}
	err = h.CheckProvider(Embedded)
	if !errors.Is(err, ErrOtherProvider) || !strings.Contains(err.Error(), "--provider kind") || !strings.Contains(err.Error(), "fairlead down --name dev") {
		t.Errorf("another provider: %v, want ErrOtherProvider and what to do", err)
	}
	old, err := NewHome(t.TempDir(), "old") // from before there were two providers
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(old.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if has, err := old.Provider(); has != Embedded || err != nil {
		t.Errorf("a directory that does not say: %q, %v", has, err)
	}
}
