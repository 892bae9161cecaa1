// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
)

// validateVia accepts the one path on which an API server is reached that this machine does
// not reach.
func validateVia(via string) error {
	target, ok := strings.CutPrefix(via, dial.ViaSSH)
	switch {
	case ok && target != "" && !strings.HasPrefix(target, "-"):
		return nil
	case slices.Contains([]string{dial.ViaPortForward, dial.ViaDirect, dial.ViaNetwork, dial.ViaAPI}, via):
		return fmt.Errorf("--via %s: this proxy connects to the API server itself, and only a bastion leads there: use --via ssh=USER@HOST, or \"fairlead socks5 --via %s\" for Services and Pods", via, via)
	}
	return fmt.Errorf("--via %q: write ssh=USER@HOST or ssh=USER@HOST:PORT, or leave it out", via)
}

// throughBastion makes every connection to the API server go through the bastion of --via,
// which resolves its name. leave ends the SSH connection.
func (o *Options) throughBastion(config *rest.Config) (leave func(), err error) {
	if o.Via == "" {
		return func() {}, nil
	}
	d, err := dial.New(o.Via, dial.Options{Timeout: dialTimeout, Logger: o.logger(), SSH: dial.SSHOptions{ConfigFile: o.SSHConfig}})
	if err != nil {
		return nil, fmt.Errorf("--via %s: %w", o.Via, err)
	}
	if config.Dial, err = dial.SSHDialContext(d); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("--via %s: %w", o.Via, err)
	}
	return func() { _ = d.Close() }, nil
}

// bastionFails tries the way through the bastion, and says what is wrong with it.
func (o *Options) bastionFails(ctx context.Context, config *rest.Config) (string, bool) {
	if o.Via == "" {
		return "", false
	}
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", false // serving has said so
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	c, err := config.Dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return bastionTrouble(err)
	}
	_ = c.Close()
	return "", false
}

// bastionTrouble returns the text of a failure on the path through a bastion, which says what
// to do.
func bastionTrouble(err error) (string, bool) {
	var e *gateway.Error
	if !errors.As(err, &e) {
		return "", false
	}
	return e.Error(), true
}
