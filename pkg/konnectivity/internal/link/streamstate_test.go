// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

var stateNames = map[streamState]string{
	stateOpen: "open", stateDialing: "dialing", stateDialingEnded: "dialingEnded", stateHalfClosedLocal: "halfClosedLocal",
	stateHalfClosedRemote: "halfClosedRemote", statePeerClosed: "peerClosed", stateClosed: "closed",
}

// TestStreamStates checks the table in the comment of streamState: what each event makes of
// a stream in each state, and whether it is a violation.
func TestStreamStates(t *testing.T) {
	events := []func(l *Link, st *Stream) error{
		func(l *Link, st *Stream) error { return l.streamFrame(typeDialed, st.id, nil) },
		func(l *Link, st *Stream) error {
			st.CloseWrite()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.fill(&batch{})
			return nil
		},
		func(l *Link, st *Stream) error { return l.streamFrame(typeFin, st.id, nil) },
		func(l *Link, st *Stream) error { return l.streamFrame(typeClose, st.id, nil) },
		func(l *Link, st *Stream) error { return l.streamFrame(typeReset, st.id, nil) },
	}
	for state, want := range map[streamState][]string{
		stateOpen:             {"link!", "halfClosedLocal", "halfClosedRemote", "peerClosed", "closed"},
		stateDialing:          {"open", "dialingEnded", "closed!", "closed!", "closed"},
		stateDialingEnded:     {"halfClosedLocal", "-", "closed!", "closed!", "closed"},
		stateHalfClosedLocal:  {"link!", "-", "closed", "closed", "closed"},
		stateHalfClosedRemote: {"link!", "closed", "-!", "peerClosed", "closed"},
		statePeerClosed:       {"link!", "closed", "-!", "-!", "closed"},
	} {
		for i, event := range events {
			if got := after(t, state, event); got != want[i] {
				t.Errorf("event %d makes of a stream that is %s: %s, want %s", i, stateNames[state], got, want[i])
			}
		}
	}
}

// after returns what an event makes of a stream in a state, as the table has it.
func after(t *testing.T, state streamState, event func(*Link, *Stream) error) string {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	mark := ""
	l := New(near, 1<<20, Config{OnViolation: func(string, bool) { mark = "!" }})
	l.writing = true // no other goroutine takes batches
	st := l.newStream(1, sinktest.NewSink(nil, false))
	l.nextID = 1
	st.state = state
	if state.localEnded() {
		st.end = endFin
	}
	if err := event(l, st); err != nil {
		return "link!"
	}
	if open := l.streams[1] != nil; open == (st.state == stateClosed) {
		t.Errorf("a stream that is %s is in Link.streams: %v", stateNames[st.state], open)
	}
	if st.state == state {
		return "-" + mark
	}
	return stateNames[st.state] + mark
}

// TestAnswerToCancelledDial: the goroutine that reads the link has found the stream of an answer
// when another one cancels the dial. The link stays.
func TestAnswerToCancelledDial(t *testing.T) {
	for name, answer := range map[string]func(*Stream) error{
		"accepted": (*Stream).gotDialed,
		"failed":   func(st *Stream) error { return st.gotDialFail([]byte{1, 'x'}) },
	} {
		t.Run(name, func(t *testing.T) {
			err := error(nil)
			if got := after(t, stateDialing, func(_ *Link, st *Stream) error {
				st.Reset("canceled", false)
				err = answer(st)
				return err
			}); got != "closed" {
				t.Errorf("the answer makes of the stream: %s (%v), want closed", got, err)
			}
		})
	}
}
