package link

import (
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel/tunneltest"
)

// TestWindowGrowsWhenBlocked: the window of a stream whose sender waits for credit grows
// while its receiver keeps up, as far as the link's slack goes, and not for a receiver
// that is slow. A stream that ends gives its slack back.
func TestWindowGrowsWhenBlocked(t *testing.T) {
	const window, size = 64 << 10, 4 << 20
	for _, slow := range []bool{false, true} {
		e := newEnds(t, Config{Window: window, MaxWindow: 4 << 20})
		e.agent.minRTT.Store(1) // the line explains nothing
		whole := e.agent.slack
		s, a := e.open(t)
		a.SetSlow(slow)
		sent := make(chan bool)
		go func() { sent <- s.SendAll(make([]byte, size)) }()
		passedOn := 0
		tunneltest.Eventually(t, "all comes", func() bool {
			n, _, _, _ := a.State()
			for slow && n-passedOn > window/2 { // it always holds that much
				a.Stream().Consumed(window / 4)
				passedOn += window / 4
			}
			return n == size
		})
		if !<-sent {
			t.Error("the sender found no room")
		}
		st := a.Stream().(*Stream)
		e.agent.mu.Lock()
		got, left := st.window, e.agent.slack
		e.agent.mu.Unlock()
		if want := window + whole; slow && got != window || !slow && got != want {
			t.Errorf("slow=%v: the window is %d bytes, it was %d and may become %d", slow, got, window, want)
		}
		if left != whole-(got-window) {
			t.Errorf("slow=%v: %d bytes of slack are left of %d, the window takes %d", slow, left, whole, got-window)
		}
		s.Stream().Reset("by the test", false)
		tunneltest.Eventually(t, "the stream is over", func() bool { return e.agent.Streams() == 0 })
		e.agent.mu.Lock()
		if e.agent.slack != whole {
			t.Errorf("%d bytes of slack have not come back", whole-e.agent.slack)
		}
		e.agent.mu.Unlock()
	}
}
