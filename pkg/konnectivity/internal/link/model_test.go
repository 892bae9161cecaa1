// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// modelEnd is one end of a stream of TestModel with what it has sent.
type modelEnd struct {
	*sinktest.Sink
	other *sinktest.Sink
	sent  int
	over  bool
	key   byte // makes the bytes of each end its own
}

func (m *modelEnd) byteAt(k int) byte { return byte(k) ^ m.key }

// step performs one operation on an end, as the schedule says.
func (m *modelEnd) step(rt *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(rt, "op") {
	case 0, 1, 2:
		n := rapid.IntRange(1, 40_000).Draw(rt, "bytes")
		if w := m.Stream().Window(); !m.over && w >= n {
			p := make([]byte, n)
			for k := range p {
				p[k] = m.byteAt(m.sent + k)
			}
			m.Stream().Send(buffer.From(p), rapid.Bool().Draw(rt, "wait"))
			m.sent += n
		}
	case 3:
		if m.Slow() {
			m.Consume()
		}
	case 4:
		m.Stream().CloseWrite()
		m.over = true
	case 5:
		time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(rt, "us")) * time.Microsecond)
	}
}

// arrived checks that the other end has everything that was sent, followed by the
// end.
func (m *modelEnd) arrived(t *testing.T, rt *rapid.T) {
	o := m.other
	sinktest.Eventually(t, "all has arrived", func() bool {
		if o.Slow() {
			o.Consume()
		}
		n, ended, _, err := o.State()
		return err != nil || ended && n == m.sent
	})
	if _, _, _, err := o.State(); err != nil {
		rt.Fatalf("aborted: %v", err)
	}
	for k, b := range o.Got() {
		if b != m.byteAt(k) {
			rt.Fatalf("byte %d is %d, want %d", k, b, m.byteAt(k))
		}
	}
}

// TestModel drives several streams of one link with random schedules and compares
// them with TCP: bytes arrive in order, complete and on their own stream, followed
// by the end. A reset stream affects no other, and nothing is left.
func TestModel(t *testing.T) {
	e := newEnds(t, Config{Window: 64 << 10, MaxWindow: 256 << 10})
	rapid.Check(t, func(rt *rapid.T) {
		var all []*modelEnd
		for i := range rapid.IntRange(1, 5).Draw(rt, "streams") {
			s, a := e.open(t)
			s.SetSlow(rapid.Bool().Draw(rt, "slow server"))
			a.SetSlow(rapid.Bool().Draw(rt, "slow agent"))
			all = append(all, &modelEnd{Sink: s, other: a, key: byte(2 * i)}, &modelEnd{Sink: a, other: s, key: byte(2*i + 1)})
		}
		for range rapid.IntRange(1, 30*len(all)/2).Draw(rt, "steps") {
			all[rapid.IntRange(0, len(all)-1).Draw(rt, "end")].step(rt)
		}
		if len(all) > 2 && rapid.Bool().Draw(rt, "reset") {
			all[0].Stream().Reset("by the test", false)
			over := all[0].over && all[1].over // possibly in an orderly way
			sinktest.Eventually(t, "the other end sees the end", func() bool { _, ended, _, err := all[1].State(); return err != nil || over && ended })
			all = all[2:]
		}
		for _, m := range all {
			m.Stream().CloseWrite()
		}
		for _, m := range all {
			m.arrived(t, rt)
		}
		sinktest.Eventually(t, "streams are forgotten", func() bool { return e.server.Streams() == 0 && e.agent.Streams() == 0 })
	})
}
