// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"net"
	"testing"
)

// An agent takes no number of servers or links from a WELCOME that it cannot mean.
func TestWelcomeNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		servers, links string
		want           Welcome
		bad            bool
	}{
		"usual":            {"3", "2", Welcome{ServerID: "s", ServerCount: 3, Window: 1000, Links: 2}, false},
		"left out":         {"", "", Welcome{ServerID: "s", Window: 1000}, false},
		"the most":         {"1", "64", Welcome{ServerID: "s", ServerCount: 1, Window: 1000, Links: 64}, false},
		"too many links":   {"1", "65", Welcome{}, true},
		"all links":        {"1", "99999999999999999999", Welcome{}, true},
		"negative links":   {"1", "-1", Welcome{}, true},
		"negative servers": {"-1", "1", Welcome{}, true},
		"words":            {"many", "1", Welcome{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _, _ = near.Close(), far.Close() }()
			go func() {
				if _, err := ReadHello(far); err == nil {
					p := appendFields("serverID", "s", "serverCount", c.servers, "window", "1000", "links", c.links)
					_, _ = far.Write(appendFrame(nil, typeWelcome, 0, string(p)))
				}
			}()
			got, err := SendHello(near, Hello{AgentID: "a", Window: 1000})
			if got != c.want || errors.Is(err, ErrHandshake) != c.bad || (err != nil) != c.bad {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
