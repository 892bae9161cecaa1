// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// TestReaderPollsNetwork: a reader that never has to wait has the network polled now and then,
// and not with each read.
func TestReaderPollsNetwork(t *testing.T) {
	near, far := socketPair(t)
	in := New(near)
	b := networkPoll()
	if b == nil {
		t.Fatal("there is no descriptor to wait for")
	}
	polled := func() bool { // since it was last asked
		b.mu.Lock()
		defer b.mu.Unlock()
		was := b.armed
		b.armed = false
		return was
	}
	polled()
	polls, read := 0, 0
	const size = 4 * pollEvery
	for piece := make([]byte, 16<<10); read < size; {
		if _, err := far.Write(piece); err != nil {
			t.Fatal(err)
		}
		for end := read + len(piece); read < end; { // all is there already
			chunks, err := in.ReadChunks(end - read)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range chunks {
				read += c.Len()
			}
			buffer.Release(chunks)
			if polled() {
				polls++
			}
		}
	}
	if polls == 0 || polls > size/pollEvery {
		t.Errorf("%d bytes were read with %d polls, want 1 to %d", read, polls, size/pollEvery)
	}
}
