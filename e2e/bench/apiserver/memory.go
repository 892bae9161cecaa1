// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

const goalRSS = 80 // MiB

// memory measures the API server with many agents, whose counts change all the time, and one client that watches them.
func (b *bench) memory(ctx context.Context) error {
	args := []string{}
	for i := range b.servers {
		src := newSource(fmt.Sprintf("server-%d", i), b.agents)
		src.counts = true
		url, stop, err := src.serve(ctx, b.dir)
		if err != nil {
			return err
		}
		defer stop()
		args = append(args, "--konnectivity-server="+url)
	}
	s, err := b.alone(ctx, "memory", args...)
	if err != nil {
		return err
	}
	defer s.kill()
	rv, err := currentVersion(ctx, s)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := openWatch(watching, s.http, s.base, rv) //nolint:bodyclose // closed below, or by the one that reads it
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	before, _ := s.cpu()
	start, most := time.Now(), int64(0)
	for time.Since(start) < b.duration {
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		rss, err := s.status("VmRSS")
		if err != nil {
			return err
		}
		most = max(most, rss)
	}
	after, _ := s.cpu()
	what := fmt.Sprintf("%d agents at %d servers each, with changing counts, after %v: ", b.agents, b.servers, b.duration)
	goal(b, what+"greatest RSS in MiB", most>>20, goalRSS)
	row(what+"CPU", "%.2f cores", (after-before).Seconds()/time.Since(start).Seconds())
	return nil
}
