// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/baseline"
)

// startFloor runs a frontend that dials the target itself: no agent, no TLS, no
// multiplexing, no limits. A tunnel with a second process cannot be cheaper for
// the same client, so this is a lower bound for every tunnel.
func startFloor(mode string) (*rig, error) {
	r, exe, err := newFloor(floorName, mode)
	if err != nil {
		return nil, err
	}
	if r.server, err = start("floor", r.dir+"/server.log", nil, exe, "floor", mode, "unix", r.socket); err != nil {
		return nil, err
	}
	return r, r.awaitSocket()
}

// startRelay puts a process that forwards bytes in front of that one. It shows
// the cost of two processes that neither encrypt nor multiplex.
func startRelay(mode string) (*rig, error) {
	r, exe, err := newFloor(relayName, mode)
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort()))
	a, err := start("floor", r.dir+"/agent0.log", nil, exe, "floor", mode, "tcp", addr)
	if err != nil {
		return nil, err
	}
	r.agents = append(r.agents, a)
	if r.server, err = start("relay", r.dir+"/server.log", nil, exe, "relay", r.socket, addr); err != nil {
		r.stop()
		return nil, err
	}
	return r, r.awaitSocket()
}

func newFloor(name, mode string) (r *rig, exe string, err error) {
	if exe, err = os.Executable(); err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "bt")
	if err != nil {
		return nil, "", err
	}
	r = &rig{pair: pair{name: name}, mode: mode, dir: dir, socket: filepath.Join(dir, "s")}
	r.via = route{mode, r.socket}
	return r, exe, nil
}

func (r *rig) awaitSocket() (err error) {
	for range 100 {
		if _, err = os.Stat(r.socket); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.stop()
	return err
}

// runFloor is the process "bench-tunnel floor <mode> <network> <address>".
func runFloor(mode, network, address string) error {
	if mode == "grpc" {
		return serveAll(network, address, baseline.GRPC)
	}
	return serveAll(network, address, baseline.Connect)
}

// runRelay is the process "bench-tunnel relay <socket> <address>".
func runRelay(socket, address string) error {
	return serveAll("unix", socket, func(c net.Conn) {
		defer c.Close()
		t, err := baseline.Dial(address)
		if err != nil {
			return
		}
		defer func() { _ = t.Close() }()
		baseline.Join(c, t)
	})
}

func serveAll(network, address string, serve func(net.Conn)) error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(c)
	}
}
