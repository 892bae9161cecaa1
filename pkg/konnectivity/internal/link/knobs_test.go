// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// TestBlockedOfTinyWindow: a peer that announces a tiny window does not make us send a
// BLOCKED for each bit of credit.
func TestBlockedOfTinyWindow(t *testing.T) {
	near, _ := pair(t)
	l := New(near, 1, Config{})
	l.writing = true // the test is the writer
	st := l.newStream(1, sinktest.NewSink(nil, false))
	st.credit = 0
	const piece = 1000
	said, passed := 0, 0
	for ; passed < 4*minQuiet; passed += piece {
		st.Window()
		if len(l.ctrl) > 0 {
			said++
			l.ctrl = nil
		}
		st.gotCredit(piece)
		st.credit = 0 // used up at once
	}
	// The first comes at once, each other behind minQuiet bytes of credit.
	if most := 1 + passed/minQuiet; said < 2 || said > most {
		t.Errorf("BLOCKED was sent %d times for %d bytes of credit, want 2 to %d", said, passed, most)
	}
}

// TestBudgetKeepsHalf: slack may use half of the budget, so that the other half is left for
// windows that the line explains.
func TestBudgetKeepsHalf(t *testing.T) {
	b := NewBudget(100)
	if !b.has(50) || b.has(51) {
		t.Errorf("of 100 bytes there are 50 for slack: %v, 51: %v; want only the former", b.has(50), b.has(51))
	}
	if !b.take(30) || b.has(21) || !b.has(20) {
		t.Error("with 30 of 100 bytes taken, there are other than 20 for slack")
	}
	if !b.take(70) {
		t.Error("the other half cannot be taken")
	}
	if b.take(1) {
		t.Error("more than the budget was taken")
	}
}
