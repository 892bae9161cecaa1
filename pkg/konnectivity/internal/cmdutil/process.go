// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"math"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/collector"
)

// Notify tells systemd about a state, for example "READY=1", if it waits for it.
func Notify(ctx context.Context, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Cannot notify systemd", "err", err)
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte(state))
}

// garbage may be half of what is alive, where Go allows for as much: bulk data lives in
// pools, and half of the heap of an idle process would be reserve. 8 MiB beyond that keep
// the collector from running dozens of times a second in a small heap while dials come and
// go; what an idle process has of them goes with Settle, or with Go's own run after two
// minutes.
var garbage = collector.Tuning{Percent: 50, Extra: 8 << 20, Room: 64 << 20}

// heedLimit makes the garbage collector run more often when memory usage approaches the
// limit of the container or unit, which Go's runtime does not know: garbage alone must
// not get the process killed. It leaves a tenth for memory that Go does not count, such
// as socket buffers. root is as in collector.Tuning. The returned function reverts the
// setting.
func heedLimit(getenv func(string) string, root string) (stop func()) {
	limit := collector.MemoryLimit(root)
	if getenv("GOMEMLIMIT") != "" || limit == math.MaxInt64 {
		return func() {}
	}
	before := debug.SetMemoryLimit(limit / 10 * 9)
	return func() { debug.SetMemoryLimit(before) }
}

// tuneMemory configures the garbage collector, unless GOGC or GOMEMLIMIT do. The returned
// function reverts that.
func tuneMemory() (stop func()) {
	if garbage.Allowed(os.Getenv, "/") {
		return garbage.Start()
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage.Percent)
	}
	return func() {}
}

// LimitProcessors lets Go code run on half of the processors at the same time, unless
// GOMAXPROCS says otherwise: on one at least, and on as many as there are links to each
// peer if there are more than one, as who asks for those wants more than one processor
// for a peer. What moves bytes between sockets loses more by waking other processors than
// it gains from them; docs/tunnel-benchmark.md has the measurement. Go's runtime does not
// heed a GOMAXPROCS that is no number above 0, and so neither does this.
func LimitProcessors(links int) {
	if n, err := strconv.ParseInt(os.Getenv("GOMAXPROCS"), 10, 32); err != nil || n <= 0 {
		runtime.GOMAXPROCS(processors(runtime.GOMAXPROCS(0), links))
	}
}

func processors(all, links int) int { return max(1, all/2, min(links, all)) }

// Settle returns memory to the kernel once the number of connections has changed by much
// and then stays the same. Setting up connections needs deep stacks and creates garbage,
// and both would stay until the next regular collection, minutes later if there is little
// traffic. It returns when ctx is done.
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
