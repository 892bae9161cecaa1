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
)

// Loopback is where a cluster's ports are.
const Loopback = "127.0.0.1"

// Ports are taken from below the range that Linux gives to outgoing
// connections (32768 up), so that a remembered port is not lost to one of them,
// and within what the Konnectivity flags allow (1024 to 49151, KON-38).
const (
	PortMin = 20000
	PortMax = 32767
)

// FreePort finds a port that nobody listens on at any of the addresses, other
// than those taken. Nothing stays open: who is faster takes the port.
func FreePort(ctx context.Context, taken []int, addresses ...string) (int, error) {
	for range 500 {
		port := PortMin + rand.IntN(PortMax-PortMin+1)
		if !slices.Contains(taken, port) && CheckPort(ctx, "", port, addresses...) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d on %s", PortMin, PortMax, addresses[0])
}

// ErrPortInUse says that another program listens on a port that is needed.
var ErrPortInUse = errors.New("port in use")

// CheckPort fails when somebody listens on the port at one of the addresses.
func CheckPort(ctx context.Context, name string, port int, addresses ...string) error {
	for _, address := range addresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w: %s:%d, for %s, is taken by another program: find it with \"ss -ltnp 'sport = :%d'\" and stop it, or make the cluster anew with \"fairlead down\" and \"up\"",
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
