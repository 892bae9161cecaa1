// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/connect"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/registry"
)

// pingInterval is below the idle timeouts of common load balancers, which begin at 60 seconds.
const pingInterval = 30 * time.Second

func (o *Options) validateConnect() (errs []error) {
	if !o.ServeConnect {
		return nil
	}
	if o.ConnectTimeout <= 0 || o.ConnectIdle < 0 || o.ConnectDrain < 0 {
		errs = append(errs, errors.New("--connect-timeout must be greater than 0, and --connect-idle-timeout and --connect-drain-timeout must not be negative"))
	}
	if o.ConnectMaxConnections < 1 || o.ConnectMaxPerUser < 1 {
		errs = append(errs, errors.New("--connect-max-connections and --connect-max-connections-per-user must be at least 1"))
	}
	return errs
}

// installConnect adds tunnelagents/portforward to the group.
func (o *Options) installConnect(s *genericapiserver.GenericAPIServer, group *registry.Group, source *late) error {
	if !o.ServeConnect {
		return nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--connect: %w: set --kubeconfig", err)
	}
	cfg.QPS = -1 // names of many clients; kube-apiserver has its own limits
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("--connect: make a client: %w", err)
	}
	destinations, err := connect.NewDestinations(s.Authorizer)
	if err != nil {
		return err
	}
	h := connect.New(connect.Config{
		Resolver:     resolve.New(client, resolve.Options{ClusterDomain: o.ClusterDomain, LookUp: resolve.SystemLookUp}),
		Destinations: destinations, Create: s.Authorizer, Dial: source.Connect,
		DialTimeout: o.ConnectTimeout, IdleTimeout: o.ConnectIdle, PingInterval: pingInterval,
		MaxConnections: o.ConnectMaxConnections, MaxPerUser: o.ConnectMaxPerUser,
	})
	group.Serve(h)
	return s.AddPreShutdownHook("connect", func() error {
		time.Sleep(o.ShutdownDelay) // hooks run at the signal, and clients are sent here until then; a second signal ends the process
		ctx, cancel := context.WithTimeout(context.Background(), o.ConnectDrain)
		defer cancel()
		h.Drain(ctx)
		return nil
	})
}
