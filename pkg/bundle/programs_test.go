// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestSchedulerLoadsConfiguration: kube-scheduler's own strict loader and
// validation accept the configuration, with its profiles and its Lease.
// It observes SCHED-15, SCHED-25, SCHED-30, SCHED-34, SCHED-35 and SCHED-36 of docs/requirements.md.
// It also observes OLD-01, OLD-02 and OLD-04 of docs/requirements.md.
func TestSchedulerLoadsConfiguration(t *testing.T) {
	for name, b := range variants(t) {
		t.Run(name, func(t *testing.T) {
			data, err := scheduler.Configuration(b, "/some/kubeconfig")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			config, err := scheduleroptions.LoadConfigFromFile(klog.Background(), file)
			if err != nil {
				t.Fatalf("kube-scheduler does not load it: %v\n%s", err, data)
			}
			if err := validation.ValidateKubeSchedulerConfiguration(config); err != nil {
				t.Error(err)
			}
			election := config.LeaderElection
			want := b.Scheduler.LeaderElection
			if election.LeaderElect != *want.LeaderElect || election.ResourceLock != "leases" ||
				election.ResourceName != want.LeaseName || election.ResourceNamespace != want.LeaseNamespace ||
				election.LeaseDuration != *want.LeaseDuration || election.RenewDeadline != *want.RenewDeadline ||
				election.RetryPeriod != *want.RetryPeriod {
				t.Errorf("leader election %+v, want %+v", election, want)
			}
			if got := config.ClientConnection.Kubeconfig; got != "/some/kubeconfig" {
				t.Errorf("kubeconfig %q", got)
			}
			if got := config.ClientConnection.QPS; got != *b.Scheduler.ClientConnection.QPS {
				t.Errorf("qps %v", got)
			}
			var profiles []string
			for _, p := range config.Profiles {
				profiles = append(profiles, p.SchedulerName)
			}
			if got := scheduler.ProfileNames(b); !slices.Equal(got, profiles) {
				t.Errorf("ProfileNames %v, want %v", got, profiles)
			}
		})
	}
}

// parse parses a process's arguments and returns the flags that were set.
func parse(t *testing.T, flags *pflag.FlagSet, args []string) {
	t.Helper()
	// klog's flag, which the commands add to their own.
	flags.Bool("logtostderr", true, "")
	if err := flags.Parse(args); err != nil {
		t.Fatalf("the program does not accept %q: %v", args, err)
	}
	if flags.NArg() > 0 {
		t.Errorf("arguments that are no flags: %q", flags.Args())
	}
}

// localPaths maps every path below a directory and makes an empty file there,
// since the programs look for them.
func localPaths(t *testing.T) func(string) string {
	root := t.TempDir()
	return func(p string) string {
		name := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
}

// TestSchedulerAcceptsArguments observes SCHED-18 of docs/requirements.md.
func TestSchedulerAcceptsArguments(t *testing.T) {
	for name, b := range variants(t) {
		t.Run(name, func(t *testing.T) {
			options := scheduleroptions.NewOptions()
			flags := pflag.NewFlagSet("kube-scheduler", pflag.ContinueOnError)
			for _, set := range options.Flags.FlagSets {
				flags.AddFlagSet(set)
			}
			if err := flags.Parse(component.LocalProcess(scheduler.Component(b), component.LocalOptions{}).Args); err != nil {
				t.Fatal(err)
			}
			if options.ConfigFile != scheduler.ConfigPath(b) {
				t.Errorf("config %q", options.ConfigFile)
			}
			if options.SecureServing.BindPort != int(b.Scheduler.SecurePort) {
				t.Errorf("port %d", options.SecureServing.BindPort)
			}
			if errs := options.SecureServing.Validate(); len(errs) > 0 {
				t.Error(errs)
			}
		})
	}
}

// TestServerAcceptsArguments: the server's own flags and validation accept all
// arguments.
func TestServerAcceptsArguments(t *testing.T) {
	for name, b := range variants(t) {
		t.Run(name, func(t *testing.T) {
			o := serveroptions.NewProxyRunOptions()
			process := component.LocalProcess(konnectivity.Server(b), component.LocalOptions{Path: localPaths(t)})
			parse(t, o.Flags(), process.Args)
			if err := o.Validate(); err != nil {
				t.Errorf("%v: %q", err, process.Args)
			}
			if !o.NeedsKubernetesClient || o.KubeconfigPath == "" {
				t.Error("agents are not authenticated")
			}
		})
	}
}

// TestAgentAcceptsArguments: the agent's own flags and validation accept all
// arguments.
func TestAgentAcceptsArguments(t *testing.T) {
	for name, b := range variants(t) {
		t.Run(name, func(t *testing.T) {
			o := agentoptions.NewGrpcProxyAgentOptions()
			process := component.LocalProcess(konnectivity.Agent(b), component.LocalOptions{Path: localPaths(t)})
			parse(t, o.Flags(), process.Args)
			if err := o.Validate(); err != nil {
				t.Errorf("%v: %q", err, process.Args)
			}
		})
	}
}

// sides are both programs' options for one bundle, as they would parse them.
func sides(t *testing.T, b *v1alpha1.Bundle) (*serveroptions.ProxyRunOptions, *agentoptions.GrpcProxyAgentOptions) {
	t.Helper()
	server, agent := serveroptions.NewProxyRunOptions(), agentoptions.NewGrpcProxyAgentOptions()
	parse(t, server.Flags(), component.Args(konnectivity.Server(b).Flags))
	parse(t, agent.Flags(), component.Args(konnectivity.Agent(b).Flags))
	return server, agent
}

// TestPairs: settings that two sides must agree on are equal, also if they are
// not the defaults: the proxy protocol and --mode, the socket, the agent port,
// the ServiceAccount and token audience, and the number of servers.
// It observes KON-03, KON-04, KON-34, KON-37, KON-66 and KON-73 of docs/requirements.md.
func TestPairs(t *testing.T) {
	for name, b := range variants(t) {
		if !*b.Konnectivity.Enabled {
			continue
		}
		t.Run(name, func(t *testing.T) {
			server, agent := sides(t, b)
			pod := component.DaemonSet(konnectivity.Agent(b)).Spec.Template.Spec
			token := pod.Volumes[0].Projected.Sources[0].ServiceAccountToken
			selector := readEgress(t, b, nil)
			equal := func(what string, a, b any) {
				t.Helper()
				if a != b {
					t.Errorf("%s: %v here, %v there", what, a, b)
				}
			}
			equal("agent port", server.AgentPort, agent.ProxyServerPort)
			equal("audience", server.AuthenticationAudience, token.Audience)
			equal("service account", server.AgentServiceAccount, pod.ServiceAccountName)
			equal("namespace", server.AgentNamespace, konnectivity.Agent(b).Namespace)
			equal("token path", agent.ServiceAccountTokenPath, pod.Containers[0].VolumeMounts[0].MountPath+"/"+token.Path)
			equal("lease counting", server.EnableLeaseController, agent.CountServerLeases)
			equal("lease namespace", server.LeaseNamespace, agent.LeaseNamespace)
			equal("lease label", server.LeaseLabel, agent.LeaseLabel)
			connection := selector.EgressSelections[0].Connection
			if connection.Transport.UDS != nil {
				equal("socket", server.UdsName, connection.Transport.UDS.UDSName)
			}
			mode := map[string]string{"GRPC": "grpc", "HTTPConnect": "http-connect"}[string(connection.ProxyProtocol)]
			equal("mode", server.Mode, mode)
		})
	}
}

// TestEgressSelector: kube-apiserver's own reader and validation accept the
// EgressSelectorConfiguration.
// It observes KON-01 and KON-02 of docs/requirements.md.
// It also observes OLD-24 of docs/requirements.md.
func TestEgressSelector(t *testing.T) {
	for name, b := range variants(t) {
		t.Run(name, func(t *testing.T) {
			config := readEgress(t, b, localPaths(t))
			if errs := egressselector.ValidateEgressSelectorConfiguration(config); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
			if len(config.EgressSelections) != 1 || config.EgressSelections[0].Name != apiserver.Selection {
				t.Errorf("selections %+v, want cluster only", config.EgressSelections)
			}
		})
	}
}

// TestKubeletRunsStaticPod gives the static Pod's manifest to the kubelet's own
// file source.
// It observes KON-30 and KON-49 of docs/requirements.md.
func TestKubeletRunsStaticPod(t *testing.T) {
	for name, b := range variants(t) {
		if !*b.Konnectivity.Enabled || b.Konnectivity.Server.Form != v1alpha1.FormStaticPod {
			continue
		}
		t.Run(name, func(t *testing.T) {
			at := writeFiles(t, render(t, b).HostFiles)
			pods := kubeletReads(t, at(b.ControlPlane.ManifestsDir))
			if len(pods) != 1 {
				t.Fatalf("the kubelet sees %d Pods", len(pods))
			}
			pod := pods[0]
			if pod.Name != "konnectivity-server-node" || pod.Namespace != b.Namespace {
				t.Errorf("Pod %s/%s", pod.Namespace, pod.Name)
			}
			if got := pod.Labels["k8s-app"]; got != "konnectivity-server" {
				t.Errorf("label k8s-app %q", got)
			}
		})
	}
}

type noSLI struct{}

func (noSLI) ObservedPodOnWatch(*corev1.Pod, time.Time) {}

func kubeletReads(t *testing.T, dir string) []*corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	config := kubeletconfig.NewPodConfig(record.NewFakeRecorder(10), noSLI{})
	kubeletconfig.NewSourceFile(klog.Background(), dir, "node", time.Hour, config.Channel(ctx, "file"))
	for {
		select {
		case update := <-config.Updates():
			if len(update.Pods) > 0 {
				return update.Pods
			}
			if config.SeenAllSources(sets.New("file")) {
				return nil
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the kubelet did not read the directory")
		}
	}
}
