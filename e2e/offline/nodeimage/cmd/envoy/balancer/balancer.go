// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// reread is how often the files are read.
const reread = 200 * time.Millisecond

// Run balances until ctx ends. If a file cannot be read or parsed, the previous configuration stays in force.
func Run(ctx context.Context, bootstrapFile string, logger *log.Logger) error {
	cds, lds, err := paths(bootstrapFile)
	if err != nil {
		return err
	}
	b := &balancer{log: logger}
	defer b.close()
	var current Config
	complaint := ""
	for {
		config, err := load(cds, lds)
		if err == nil && !reflect.DeepEqual(config, current) {
			err = b.apply(ctx, config)
			if err == nil {
				logger.Printf("listening on %q for %v", config.Listen, config.Servers)
				current = config
			}
		}
		if text := fmt.Sprint(err); err != nil && text != complaint {
			logger.Printf("configuration: %v", err)
			complaint = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reread):
		}
	}
}

// balancer forwards connections to healthy servers in turn.
type balancer struct {
	log      *log.Logger
	listener net.Listener
	next     atomic.Uint64

	mu      sync.Mutex
	config  Config
	servers []*server
	stop    context.CancelFunc // ends the health checks
}

// server is one that connections go to.
type server struct {
	address string
	healthy atomic.Bool
}

// apply puts a configuration in force; connections that are open stay as they are.
func (b *balancer) apply(ctx context.Context, config Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if config.Listen != b.config.Listen {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", config.Listen)
		if config.Listen == "" {
			listener, err = nil, nil
		}
		if err != nil {
			return err
		}
		if b.listener != nil {
			_ = b.listener.Close()
		}
		b.listener = listener
		if listener != nil {
			go b.accept(ctx, listener)
		}
	}
	if b.stop != nil {
		b.stop()
	}
	checks, stop := context.WithCancel(ctx)
	b.config, b.servers, b.stop = config, nil, stop
	for _, address := range config.Servers {
		s := &server{address: address}
		b.servers = append(b.servers, s)
		if config.HealthPath == "" {
			s.healthy.Store(true)
			continue
		}
		go b.watch(checks, s, config)
	}
	return nil
}

func (b *balancer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener != nil {
		_ = b.listener.Close()
	}
	if b.stop != nil {
		b.stop()
	}
}

// watch asks a server for its health until ctx ends.
func (b *balancer) watch(ctx context.Context, s *server, config Config) {
	client := &http.Client{Timeout: config.Timeout, Transport: &http.Transport{
		// As kind configures Envoy: trust_chain_verification: ACCEPT_UNTRUSTED.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	good, bad := 0, 0
	for {
		if err := healthy(ctx, client, "https://"+s.address+config.HealthPath); err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		if now := good >= config.HealthyThreshold; now != s.healthy.Load() && (now || bad >= config.UnhealthyThreshold) && ctx.Err() == nil {
			s.healthy.Store(now)
			b.log.Printf("%s is healthy: %v", s.address, now)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(config.Interval):
		}
	}
}

func healthy(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

func (b *balancer) accept(ctx context.Context, listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // too many open files, perhaps
			continue
		}
		go b.serve(ctx, connection)
	}
}

// candidates are the servers in the order in which one connection tries them: healthy ones in turn, or all of them if
// none is known to be healthy, as Envoy does.
func (b *balancer) candidates() ([]*server, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*server
	for _, s := range b.servers {
		if s.healthy.Load() {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		list = b.servers
	}
	if len(list) == 0 {
		return nil, 0
	}
	first := int(b.next.Add(1) % uint64(len(list)))
	return append(append([]*server{}, list[first:]...), list[:first]...), b.config.ConnectTimeout
}

func (b *balancer) serve(ctx context.Context, connection net.Conn) {
	defer func() { _ = connection.Close() }()
	servers, timeout := b.candidates()
	for _, s := range servers {
		dialer := net.Dialer{Timeout: timeout}
		upstream, err := dialer.DialContext(ctx, "tcp", s.address)
		if err != nil {
			b.log.Printf("%s: %v", s.address, err)
			continue
		}
		join(connection, upstream)
		return
	}
}

// join copies in both directions. When one side closes its sending direction, join closes that direction toward the
// other side.
func join(a, b net.Conn) {
	defer func() { _ = b.Close() }()
	var done sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		done.Go(func() {
			_, err := io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(interface{ CloseWrite() error }); ok && err == nil {
				_ = half.CloseWrite()
				return
			}
			_ = pair[0].Close()
			_ = pair[1].Close()
		})
	}
	done.Wait()
}
