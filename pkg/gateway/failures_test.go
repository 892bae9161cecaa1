// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestFailures: a client with too many wrong passwords waits until the delay of one of them is over, others do not
// wait, and nothing is kept of clients that stop.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFailures(time.Second)
		guesser, other := ClientOf("[2001:db8::1]:1"), ClientOf("[2001:db8:0:1::1]:1")
		f.Add(guesser)
		time.Sleep(time.Second / 2)
		for n := 1; n < MaxFailures; n++ {
			if f.TooMany(guesser) {
				t.Fatalf("too many after %d", n)
			}
			f.Add(ClientOf("[2001:db8::ffff]:2")) // of the same network
		}
		if !f.TooMany(guesser) || f.TooMany(other) {
			t.Errorf("the guesser waits: %v, another client: %v", f.TooMany(guesser), f.TooMany(other))
		}
		time.Sleep(time.Second/2 + 1)
		synctest.Wait()
		if f.TooMany(guesser) {
			t.Error("the guesser waits longer than the delay")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(f.byClient) > 0 {
			t.Errorf("%v is kept", f.byClient)
		}
	})
	var none *Failures
	for range 2 * MaxFailures {
		none.Add(ClientOf("192.0.2.1:1"))
	}
	if none.TooMany(ClientOf("192.0.2.1:1")) {
		t.Error("the nil pointer bounds failures")
	}
}
