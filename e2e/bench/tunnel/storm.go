// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/baseline"
)

// stormKind is the kind of route of a load of agents that connect.
const stormKind = "storm"

// stormSize is the number of agents that are connecting at any time.
const stormSize = 500

// storming measures dials while many agents connect, as behind a restart of a server or
// its network. Each makes its TLS handshake, goes away and begins again.
func storming(e *env) (map[string]float64, error) {
	via := route{stormKind, "127.0.0.1:" + strconv.Itoa(e.r.ports.agent)}
	l, err := startLoad(via, e.r.dir, stormSize)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	time.Sleep(300 * time.Millisecond)
	var ts []time.Duration
	for end := time.Now().Add(5 * e.o.dur); time.Now().Before(end); {
		start := time.Now()
		if err := dialOnce(e.dial, e.t.addr); err != nil {
			return nil, err
		}
		ts = append(ts, time.Since(start))
	}
	return map[string]float64{
		"dial ms p50 next to 500 handshakes": percentile(ts, 50).Seconds() * 1e3,
		"dial ms p99 next to 500 handshakes": percentile(ts, 99).Seconds() * 1e3,
	}, nil
}

// runStorm is the process "bench-tunnel load storm <address> <directory of certificates> <n>".
func runStorm(address, dir string, n int) error {
	cfg, err := bothEnds(dir)
	if err != nil {
		return err
	}
	cfg.NextProtos = []string{"h2"}
	for range n {
		go func() {
			for {
				connectOnce(address, cfg)
			}
		}()
	}
	fmt.Println("running")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// connectOnce makes a TLS handshake with the server and leaves no port in TIME_WAIT.
func connectOnce(address string, cfg *tls.Config) {
	t, err := baseline.Dial(address)
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	defer func() { _ = t.Close() }()
	_ = t.SetLinger(0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := tls.Client(t, cfg)
	if c.HandshakeContext(ctx) == nil {
		_, _ = c.Read(make([]byte, 1)) // what the server says first: it is through, too
	}
}
