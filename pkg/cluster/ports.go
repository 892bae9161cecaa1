// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Loopback is the address of a cluster's ports.
const Loopback = "127.0.0.1"

// Ports are taken from below Linux's default range of ephemeral ports (32768
// and up), so that an outgoing connection does not take a stored port. They are
// also within the range that the Konnectivity flags allow (1024 to 49151).
const (
	PortMin = 20000
	PortMax = 32767
)

// FreePort finds a port that is not in taken and that no process listens on at
// any of the addresses. It does not reserve the port, so another process can
// take it.
func FreePort(ctx context.Context, taken []int, addresses ...string) (int, error) {
	for range 500 {
		port := PortMin + rand.IntN(PortMax-PortMin+1)
		if !slices.Contains(taken, port) && CheckPort(ctx, "", port, addresses...) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d on %s", PortMin, PortMax, addresses[0])
}

// ErrNoLoopback is returned if programs on this machine cannot connect to each
// other.
var ErrNoLoopback = errors.New("no loopback interface")

// CheckLoopback fails if the loopback interface of the machine or network
// namespace is down: every part of a cluster would wait for the others.
func CheckLoopback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(Loopback, "0"))
	if err == nil {
		defer func() { _ = l.Close() }()
		var conn net.Conn
		if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String()); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("%w: connecting to %s: %w: turn it on with \"ip link set lo up\"", ErrNoLoopback, Loopback, err)
}

// ErrPortInUse is returned if another program listens on a required port.
var ErrPortInUse = errors.New("port in use")

// CheckPort fails if a process listens on the port at one of the addresses.
func CheckPort(ctx context.Context, name string, port int, addresses ...string) error {
	for _, address := range addresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w: %s:%d, for %s, is taken by another program: find it with \"ss -ltnp 'sport = :%d'\" and stop it, or recreate the cluster with \"fairlead down\" and \"up\"",
				ErrPortInUse, address, port, name, port)
		}
		if err != nil {
			return fmt.Errorf("trying port %d for %s: %w", port, name, err)
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}
