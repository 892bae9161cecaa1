// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/openapi"
	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/registry"
)

// watchGrace is how long the server waits for the ends of watches at most.
const watchGrace = 2 * time.Second

// Run serves until ctx ends.
func Run(ctx context.Context, o *Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	s, err := cfg.Complete(nil).New("fairlead-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return fmt.Errorf("set up the API server: %w", err)
	}
	if err := o.install(s); err != nil { //nolint:contextcheck // connections have time to end after ctx has
		return err
	}
	return s.PrepareRun().RunWithContext(ctx)
}

// config is the configuration of the generic API server: delegated authentication and authorization, no admission and no
// priority and fairness, because requests have passed those of kube-apiserver.
func (o *Options) config() (*genericapiserver.Config, error) {
	cfg := genericapiserver.NewConfig(registry.Codecs)
	cfg.EffectiveVersion, cfg.FeatureGate = compatibility.DefaultBuildEffectiveVersion(), utilfeature.DefaultFeatureGate
	cfg.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString(v1alpha1.SubresourceConnect))
	cfg.BuildHandlerChainFunc = func(h http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(registry.HoldRoom(h), c)
	}
	cfg.EnableProfiling, cfg.MaxRequestsInFlight = o.Profiling, o.MaxRequestsInFlight
	cfg.ShutdownDelayDuration, cfg.ShutdownWatchTerminationGracePeriod = o.ShutdownDelay, watchGrace
	namer := openapinamer.NewDefinitionNamer(registry.Scheme)
	cfg.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	cfg.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	cfg.OpenAPIConfig.Info.Title, cfg.OpenAPIConfig.Info.Version = "Fairlead tunnel", version.Get().Version
	cfg.OpenAPIV3Config.Info.Title, cfg.OpenAPIV3Config.Info.Version = "Fairlead tunnel", version.Get().Version
	if err := o.SecureServing.ApplyTo(&cfg.SecureServing, &cfg.LoopbackClientConfig); err != nil {
		return nil, fmt.Errorf("secure serving: %w", err)
	}
	if err := o.Authentication.ApplyTo(&cfg.Authentication, cfg.SecureServing, cfg.OpenAPIConfig); err != nil {
		return nil, fmt.Errorf("delegated authentication: %w", err)
	}
	if c, ok := cfg.SecureServing.ClientCA.(dynamiccertificates.ControllerRunner); ok && cfg.Authentication.RequestHeaderConfig != nil {
		cfg.SecureServing.ClientCA = &loadedCA{CAContentProvider: cfg.SecureServing.ClientCA, controller: c,
			frontProxy: cfg.Authentication.RequestHeaderConfig.CAContentProvider, patience: caPatience}
	}
	if err := o.Authorization.ApplyTo(&cfg.Authorization); err != nil {
		return nil, fmt.Errorf("delegated authorization: %w", err)
	}
	if err := o.Audit.ApplyTo(cfg); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return cfg, nil
}

// late connects the group, which needs a source of connections, and the collector, which needs the group's stores.
type late struct{ *collect.Collector }

// install adds the API group, and the collector that fills it.
func (o *Options) install(s *genericapiserver.GenericAPIServer) error {
	source := &late{}
	group, err := registry.New(source, time.Now(), o.MaxWatches, o.MaxWatchesPerUser)
	if err != nil {
		return err
	}
	source.Collector = collect.New(collect.Config{
		Finder: &collect.Endpoints{URLs: o.Servers, CAFile: o.ServerCAFile, TokenFile: o.ServerTokenFile},
		Agents: group.Agents, AgentsPrefix: group.Agents.Prefix(), Servers: group.Servers, ServersPrefix: group.Servers.Prefix(),
		Interval: o.PollInterval, CountsInterval: o.CountsInterval, StaleAfter: o.StaleAfter, KeepGone: o.KeepGone,
		Logger: klog.Background(),
	})
	if err := o.installConnect(s, group, source); err != nil {
		return err
	}
	if err := collectUntilStopped(s, source); err != nil {
		return err
	}
	if err := s.InstallAPIGroup(group.Info()); err != nil {
		return fmt.Errorf("install the API group: %w", err)
	}
	return s.AddReadyzChecks(healthz.NamedCheck("konnectivity-servers", func(*http.Request) error { return source.Ready() }))
}

// collectUntilStopped runs the collector until no request is served any more. The context of a hook ends before, when the
// server begins to end its watches.
func collectUntilStopped(s *genericapiserver.GenericAPIServer, source *late) error {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.RegisterDestroyFunc(func() { // before the stores are destroyed, which is registered later
		cancel()
		running.Wait()
	})
	return s.AddPostStartHook("collect", func(genericapiserver.PostStartHookContext) error {
		running.Go(func() { source.Run(ctx) })
		return nil
	})
}
