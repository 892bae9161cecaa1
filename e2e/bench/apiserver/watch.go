// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	goalDelivery = 250 * time.Millisecond
	// perConnection is how many watches share a connection: kube-apiserver has one connection for all its clients.
	perConnection = 250
	// slowWatchers read nothing, and slowWindow is how much of their events waits for them outside of the server.
	slowWatchers, slowWindow = 5, 64 << 10
	// watchedAgents is the number of objects.
	watchedAgents = 200
	// poll is that of a server which shows events as they come. The default bundles those of a second.
	poll = 100 * time.Millisecond
)

// watch measures how long events take from the konnectivity-server's answer to the watchers.
func (b *bench) watch(ctx context.Context) error {
	src := newSource("watched", watchedAgents)
	url, stop, err := src.serve(ctx, b.dir)
	if err != nil {
		return err
	}
	defer stop()
	s, err := b.alone(ctx, "watched", "--konnectivity-server="+url, "--poll-interval="+poll.String(), "--max-watches-per-user=2000")
	if err != nil {
		return err
	}
	defer s.kill()
	calm, err := b.watched(ctx, s, src, 0)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d watchers, %d events/s: ", b.watchers, b.rate)
	row(what+"p50 of delivery", "%v", quantile(calm.took, 0.5))
	goal(b, what+"p99 of delivery", quantile(calm.took, 0.99), goalDelivery)
	goal(b, what+"watchers dropped", calm.dropped, 0)
	row(what+"events delivered", "%.1f%% of those due, CPU of the server %.2f cores, of the clients %.2f", calm.share*100, calm.cpu, calm.ownCPU)
	slow, err := b.watched(ctx, s, src, slowWatchers)
	if err != nil {
		return err
	}
	what = fmt.Sprintf("the same next to %d watchers that read nothing: ", slowWatchers)
	goal(b, what+"p99 of delivery to the others", quantile(slow.took, 0.99), goalDelivery)
	goal(b, what+"other watchers dropped", slow.dropped, 0)
	goal(b, what+"slow watchers that were not dropped", slowWatchers-slow.slowDropped, 0)
	row(what+"slow watchers dropped after", "%v", slow.after.Round(time.Second))
	return nil
}

// delivery is what one measurement found.
type delivery struct {
	took                 []time.Duration
	share, cpu, ownCPU   float64
	dropped, slowDropped int
	after                time.Duration
}

// watched measures with a number of slow watchers next to the others.
func (b *bench) watched(ctx context.Context, s *server, src *source, slow int) (out delivery, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.duration+b.bound)
	defer cancel()
	rv, err := currentVersion(ctx, s)
	if err != nil {
		return out, err
	}
	var lazy []*http.Response
	client := s.client(slowWindow)
	for range slow {
		resp, err := openWatch(ctx, client, s.base, rv)
		if err != nil {
			return out, err
		}
		defer resp.Body.Close()
		lazy = append(lazy, resp) //nolint:bodyclose // it is closed above
	}
	w, err := b.openWatchers(ctx, s, rv)
	if err != nil {
		return out, err
	}
	var running sync.WaitGroup
	var stopped atomic.Bool
	for i := range w {
		running.Go(func() { w[i].read(&stopped) })
	}
	src.setRate(b.rate)
	before, _ := s.cpu()
	ownBefore := ownCPU()
	start := time.Now()
	out.after, err = b.dropTime(ctx, s, slow, start)
	if err == nil {
		err = wait(ctx, b.duration-time.Since(start))
	}
	after, _ := s.cpu()
	ownAfter, lasted := ownCPU(), time.Since(start)
	src.setRate(0)
	_ = wait(ctx, 2*time.Second) // for events on their way
	stopped.Store(true)
	for _, resp := range lazy {
		out.slowDropped += ended(resp)
	}
	cancel()
	running.Wait()
	for i := range w {
		out.took = append(out.took, w[i].took...)
		if w[i].dropped {
			out.dropped++
		}
	}
	out.share = float64(len(out.took)) / (lasted.Seconds() * float64(b.rate*b.watchers))
	out.cpu, out.ownCPU = (after-before).Seconds()/lasted.Seconds(), (ownAfter-ownBefore).Seconds()/lasted.Seconds()
	return out, err
}

// openWatchers opens the watches that read. Those that have them close their bodies.
func (b *bench) openWatchers(ctx context.Context, s *server, rv string) (w []watcher, err error) {
	w = make([]watcher, b.watchers)
	var client *http.Client
	for i := range w {
		if i%perConnection == 0 {
			client = s.client(0)
		}
		if w[i].resp, err = openWatch(ctx, client, s.base, rv); err != nil { //nolint:bodyclose // see above
			return nil, err
		}
	}
	return w, nil
}

// ownCPU is the processor time of this process, whose clients share the machine with the server.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// dropTime waits until the server says that it has dropped the slow watchers.
func (b *bench) dropTime(ctx context.Context, s *server, slow int, start time.Time) (time.Duration, error) {
	if slow == 0 {
		return 0, nil
	}
	err := b.until(ctx, "the slow watchers to be dropped", func(ctx context.Context) error {
		n, err := s.metric(ctx, "fairlead_apiserver_dropped_watches_total", "", "")
		if err == nil && n < float64(slow) {
			err = fmt.Errorf("%v of %d are", n, slow)
		}
		return err
	})
	return time.Since(start), err
}

// ended reads what waits of a slow watch, and returns 1 if the watch ends then.
func ended(resp *http.Response) int {
	done := make(chan bool, 1)
	go func() {
		lines := bufio.NewReader(resp.Body)
		for {
			if _, err := lines.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				done <- true
				return
			}
		}
	}()
	select {
	case <-done:
		return 1
	case <-time.After(5 * time.Second):
		return 0
	}
}

// watcher reads events.
type watcher struct {
	resp    *http.Response
	took    []time.Duration
	dropped bool
}

func (w *watcher) read(stopped *atomic.Bool) {
	defer w.resp.Body.Close()
	lines := bufio.NewReader(w.resp.Body)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			w.dropped = !stopped.Load()
			return
		}
		now := time.Now()
		_, rest, ok := bytes.Cut(line, []byte(stamp))
		if end := bytes.IndexByte(rest, '"'); ok && end > 0 {
			if at, err := strconv.ParseInt(string(rest[:end]), 10, 64); err == nil {
				w.took = append(w.took, now.Sub(time.Unix(0, at)))
			}
		}
	}
}

func openWatch(ctx context.Context, client *http.Client, base, rv string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+tunnelv1alpha1.Path+"/tunnelagents?watch=1&timeoutSeconds=600&resourceVersion="+rv, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("watch: %s", resp.Status)
	}
	return resp, err
}

// currentVersion is the resource version of the list of agents.
func currentVersion(ctx context.Context, s *server) (string, error) {
	body, err := s.get(ctx, tunnelv1alpha1.Path+"/tunnelagents")
	if err != nil {
		return "", err
	}
	var list metav1.PartialObjectMetadataList
	err = json.Unmarshal(body, &list)
	return list.ResourceVersion, err
}
