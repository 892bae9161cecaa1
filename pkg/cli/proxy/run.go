// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/serving"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/apiproxy"
	"github.com/fairlead-dev/fairlead/pkg/gateway/kubeconfig"
)

// Run serves until ctx ends, or until the command does.
func (o *Options) Run(ctx context.Context) error {
	cluster, err := o.Cluster.Load()
	if err != nil {
		return err
	}
	leave, err := o.throughBastion(cluster.Config)
	if err != nil {
		return err
	}
	defer leave()
	l, err := o.listen(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	tlsConfig, ca, err := o.secure(l)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	handler, err := o.handler(cluster, tlsConfig, registry)
	if err != nil {
		return err
	}
	stopMetrics, err := serving.Metrics(ctx, o.MetricsAddress, registry, o.ErrOut)
	if err != nil {
		return err
	}
	defer stopMetrics()
	o.warn(cluster)
	entry := o.entry(cluster, l.Addr(), ca)
	removeContext, err := serving.AddContext(o.WriteKubeconfig, entry, o.ErrOut)
	if err != nil {
		return err
	}
	removeContext = sync.OnceFunc(removeContext)
	defer removeContext()
	if len(o.Command) == 0 { // a second signal ends the process at once, while connections drain
		defer context.AfterFunc(ctx, removeContext)()
	}
	if len(o.Command) > 0 {
		return o.serveCommand(ctx, handler, l, entry)
	}
	// The line of kubectl proxy, which scripts read the port from.
	_, _ = fmt.Fprintf(o.Out, "Starting to serve on %s\n", l.Addr())
	go o.probe(ctx, cluster)
	return handler.Serve(ctx, l, o.DrainTimeout)
}

// serveCommand serves until the command ends.
func (o *Options) serveCommand(ctx context.Context, handler *apiproxy.Handler, l net.Listener, entry kubeconfig.Entry) error {
	path, remove, err := serving.TemporaryKubeconfig(entry)
	if err != nil {
		return err
	}
	defer remove()
	runs, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- handler.Serve(runs, l, 0) }()
	err = serving.RunCommand(ctx, o.IOStreams, o.Command, map[string]string{"KUBECONFIG": path})
	stop()
	if serveErr := <-served; serveErr != nil {
		_, _ = fmt.Fprintf(o.ErrOut, "Warning: %v\n", serveErr)
	}
	return err
}

// logger logs in the form of Kubernetes components.
func (o *Options) logger() logr.Logger {
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(o.ErrOut)))
}

func (o *Options) handler(cluster clusterflags.Cluster, tlsConfig *tls.Config, registry *prometheus.Registry) (*apiproxy.Handler, error) {
	log := logr.Discard()
	if o.AccessLog {
		log = o.logger()
	}
	var failures *gateway.Failures
	if o.TokenFile != "" { // the token of --tls is random: it cannot be guessed
		failures = gateway.NewFailures(gateway.FailureDelay)
	}
	return apiproxy.New(apiproxy.Options{
		Config: cluster.Config, Filter: o.filter, APIPrefix: o.APIPrefix, StaticDir: o.WWW, StaticPrefix: o.WWWPrefix,
		AppendServerPath: o.AppendServerPath, Keepalive: o.Keepalive, Token: o.token, Failures: failures, TLS: tlsConfig, Log: log, Registry: registry,
		Explain: func(err error) string { return explain(err, cluster.Config) },
	})
}

// explain says in one line what is wrong and what to do.
func explain(err error, config *rest.Config) string {
	if text, ok := bastionTrouble(err); ok {
		return text
	}
	err = check.Explain(err, config, time.Now())
	if hint := check.HintOf(err); hint != "" {
		return err.Error() + ": " + hint
	}
	return err.Error()
}

func (o *Options) listen(ctx context.Context) (net.Listener, error) {
	if o.UnixSocket != "" {
		return apiproxy.ListenUnix(ctx, o.UnixSocket)
	}
	return apiproxy.Listen(ctx, o.Address, o.Port)
}

// warn tells what the user may not expect.
func (o *Options) warn(cluster clusterflags.Cluster) {
	warning := func(format string, args ...any) { _, _ = fmt.Fprintf(o.ErrOut, "Warning: "+format+"\n", args...) }
	if o.UnixSocket == "" && !gateway.IsLoopback(o.Address) && o.token == "" {
		warning("everyone who can reach %s has your rights in the cluster, over an unencrypted connection; --token-file requires a token", o.Address)
	}
	if o.DisableFilter && o.UnixSocket == "" {
		warning("the filter is off: web pages that you visit can use the proxy with your rights")
	}
	if target, err := url.Parse(cluster.Config.Host); err == nil && target.Path != "" && target.Path != "/" && !o.AppendServerPath {
		warning("the server URL of the kubeconfig has the path %s, which requests do not get: --append-server-path adds it", target.Path)
	}
}

// probe warns if the API server does not answer. The proxy serves all the same, because
// the server may come back; until then requests get status 502.
func (o *Options) probe(ctx context.Context, cluster clusterflags.Cluster) {
	if text, ok := o.bastionFails(ctx, cluster.Config); ok {
		_, _ = fmt.Fprintf(o.ErrOut, "Warning: %s\n", text)
		return
	}
	err := check.Connect(ctx, &check.Env{Config: cluster.Config})
	if errors.Is(err, check.ErrUnreachable) && ctx.Err() == nil {
		_, _ = fmt.Fprintf(o.ErrOut, "Warning: %v: %s\n", err, check.HintOf(err))
	}
}
