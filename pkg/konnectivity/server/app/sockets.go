// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// handed are listeners that another process holds for this one, as systemd does with
// socket units (sd_listen_fds(3)). They outlive the server: who connects while one ends and
// the next one starts waits in them.
type handed []net.Listener

// takeHanded takes the sockets that are handed to this process. Its environment names none any
// more then.
func takeHanded() (handed, error) {
	var all handed
	for _, f := range activation.Files(true) {
		l, err := net.FileListener(f) // a copy
		_ = f.Close()
		if err != nil {
			_ = all.close()
			return nil, fmt.Errorf("socket %s, handed to the server (LISTEN_FDS): %w", f.Name(), err)
		}
		all = append(all, l)
	}
	return all, nil
}

// take takes the one that fits out of those that are left, or returns nil.
func (h *handed) take(fits func(net.Addr) bool) net.Listener {
	for i, l := range *h {
		if fits(l.Addr()) {
			*h = append((*h)[:i:i], (*h)[i+1:]...)
			return l
		}
	}
	return nil
}

// close closes those that are left, and says which these are.
func (h *handed) close() (err error) {
	for _, l := range *h {
		err = errors.Join(err, fmt.Errorf("%s %s was handed to the server (LISTEN_FDS), which uses one for --uds-name, or for --server-port without it, and one for --agent-port", l.Addr().Network(), l.Addr()))
		_ = l.Close()
	}
	*h = nil
	return err
}

func onPort(port int) func(net.Addr) bool {
	return func(a net.Addr) bool {
		tcp, ok := a.(*net.TCPAddr)
		return ok && tcp.Port == port
	}
}

func atPath(path string) func(net.Addr) bool {
	return func(a net.Addr) bool {
		unix, ok := a.(*net.UnixAddr)
		return ok && filepath.Clean(unix.Name) == filepath.Clean(path)
	}
}

// listeners are where agents and clients come.
type listeners struct {
	agents, front net.Listener
	frontTLS      *tls.Config
}

// openListeners takes those that are handed to it and opens the others.
func (o *Options) openListeners(ctx context.Context, m *server.Metrics) (l listeners, err error) {
	held, err := takeHanded()
	if err != nil {
		return l, err
	}
	defer func() {
		if left := held.close(); err == nil {
			err = left
		}
		if err != nil {
			l.close()
		}
	}()
	if l.agents, err = listenTCP(ctx, &held, "agents' listener", o.AgentBindAddress, o.AgentPort); err != nil {
		return l, err
	}
	err = o.listenFront(ctx, m, &held, &l)
	return l, err
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.agents, l.front} {
		if one != nil {
			_ = one.Close()
		}
	}
}

func (o *Options) listenFront(ctx context.Context, m *server.Metrics, held *handed, l *listeners) (err error) {
	if o.UdsName != "" {
		if l.front = held.take(atPath(o.UdsName)); l.front == nil {
			l.front, err = server.ListenUnix(o.UdsName, o.DeleteUDSFile)
		}
		return err
	}
	if l.frontTLS, err = o.frontTLS(m); err != nil {
		return err
	}
	l.front, err = listenTCP(ctx, held, "clients' listener", o.ServerBindAddress, o.ServerPort)
	return err
}

func listenTCP(ctx context.Context, held *handed, what, address string, port int) (net.Listener, error) {
	if l := held.take(onPort(port)); l != nil {
		return l, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cmdutil.Address(address, port))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return l, nil
}
