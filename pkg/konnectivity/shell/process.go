package shell

import (
	"context"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
)

// Notify tells systemd about a state, for example "READY=1", if it waits for it.
func Notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		klog.V(1).InfoS("Cannot tell systemd", "err", err)
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte(state))
}

// tuneMemory makes the garbage collector run twice as often as by default,
// unless GOGC says otherwise: bulk data lives in pools, so there is little
// garbage, and half of the heap of an idle process would be reserve.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// LimitProcessors lets Go code run on the given share of the processors at the
// same time, one at least, unless GOMAXPROCS says otherwise. What moves bytes
// between sockets loses more by waking other processors than it gains from them;
// docs/tunnel-benchmark.md has the measurement.
func LimitProcessors(divisor int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/divisor))
	}
}

// Settle gives memory back once the number of connections has changed by much
// and then stands still: setting connections up needs deep stacks and makes
// garbage, both of which would stay until the next regular collection, minutes
// later where there is little traffic. It returns when ctx ends.
func Settle(ctx context.Context, count func() int64) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var last, tidied int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n := count()
		changed := n - tidied
		if changed < 0 {
			changed = -changed
		}
		if n == last && changed > 256+tidied/4 {
			debug.FreeOSMemory() // halves stacks that are mostly unused
			debug.FreeOSMemory() // and once more
			tidied = n
		}
		last = n
	}
}
