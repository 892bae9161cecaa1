// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// refusal is a configuration with a value that breaks a rule, the field that the
// error names, and a part of what it says to do.
type refusal struct{ config, field, want string }

func refuses(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Load([]byte(bundletest.Old(tc.config)))
			if err == nil {
				t.Fatal("accepted")
			}
			if !errors.Is(err, bundle.ErrInvalid) || !strings.Contains(err.Error(), "spec."+tc.field+": ") {
				t.Errorf("error %v, want ErrInvalid at %s", err, tc.field)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error is not one line: %v", err)
			}
			if _, err := bundle.Load(inCurrent(t, tc.config)); err != nil && retired.MatchString(err.Error()) {
				t.Errorf("the error about a file of %s names %q: %v", bundle.APIVersion, retired.FindString(err.Error()), err)
			}
		})
	}
}

// retired are names of fields and values that the current version does not have.
var retired = regexp.MustCompile(`\b(serverHost|agentPort|leaseDuration|renewDeadline|retryPeriod|drainTimeout|validity|caValidity)\b` +
	`|\b(host|ipv4|ipv6|cidr|default-route)=|"(host|ipv4|ipv6|cidr|default-route)"|(at least|such as|from) \d+[sh]\b`)

// inCurrent is the file of a spec of the deprecated version in the current one.
func inCurrent(t *testing.T, spec string) []byte {
	t.Helper()
	var object map[string]any
	raw, err := yaml.YAMLToJSON([]byte(bundletest.Old(spec)))
	if err == nil {
		err = utiljson.Unmarshal(raw, &object)
	}
	if err == nil {
		err = conversion.Convert(object, bundle.APIVersion)
	}
	if err != nil {
		t.Fatal(err)
	}
	metadata, _ := object["metadata"].(map[string]any)
	delete(metadata, "annotations") // what the current version cannot express
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestLoadRefusesForms: a static Pod runs once per node, and writes over no file of another
// component.
func TestLoadRefusesForms(t *testing.T) {
	static := func(more string) string { return "scheduler: {form: StaticPod, " + more + "}" }
	refuses(t, map[string]refusal{
		"form":              {"scheduler: {form: DaemonSet}", "scheduler.form", `"Deployment", "StaticPod"`},
		"kubeconfig":        {"scheduler: {kubeconfig: /etc/kubernetes/x.conf}", "scheduler.kubeconfig", "ServiceAccount"},
		"replicas":          {static("replicas: 2"), "scheduler.replicas", "once on each control plane node"},
		"node selector":     {static("nodeSelector: {a: b}"), "scheduler.nodeSelector", "once on each control plane node"},
		"no election":       {static("leaderElection: {leaderElect: false}"), "scheduler.leaderElection.leaderElect", "all would schedule the same Pods"},
		"relative path":     {static("kubeconfig: x.conf"), "scheduler.kubeconfig", "absolute path"},
		"kubeadm's file":    {static("kubeconfig: /etc/kubernetes/scheduler.conf"), "scheduler.kubeconfig", "a separate file"},
		"kubeadm's by name": {static("name: scheduler"), "scheduler.kubeconfig", "a separate file"},
		"the server's":      {static("kubeconfig: /etc/kubernetes/konnectivity-server.conf"), "scheduler.kubeconfig", "a separate file"},
		"manifest":          {static("name: kube-scheduler, leaderElection: {leaseName: x}"), "scheduler.name", "another component"},
		"directory":         {static("name: manifests"), "scheduler.name", "another component"},
	})
}

// TestLoadRefusesProfiles: Load rejects invalid profiles, and settings of the
// scheduler that do not fit them.
// It observes SCHED-03, SCHED-25 and SCHED-35 of docs/requirements.md.
// It also observes OLD-04 of docs/requirements.md.
func TestLoadRefusesProfiles(t *testing.T) {
	refuses(t, map[string]refusal{
		"default profile name":  {"scheduler: {profiles: [{schedulerName: default-scheduler}]}", "scheduler.profiles[0].schedulerName", "fight"},
		"no profile name":       {"scheduler: {profiles: [{}]}", "scheduler.profiles[0].schedulerName", "name it"},
		"empty profile name":    {"scheduler: {profiles: [{schedulerName: ''}]}", "scheduler.profiles[0].schedulerName", "name it"},
		"equal profile names":   {"scheduler: {profiles: [{schedulerName: a}, {schedulerName: a}]}", "scheduler.profiles[1].schedulerName", "rename one"},
		"no profile":            {"scheduler: {profiles: []}", "scheduler.profiles", "remove the field"},
		"default lease":         {"scheduler: {leaderElection: {leaseName: kube-scheduler}}", "scheduler.leaderElection.leaseName", "separate name"},
		"replicas alone":        {"scheduler: {replicas: 2, leaderElection: {leaderElect: false}}", "scheduler.replicas", "all replicas would schedule the same Pods"},
		"lease by name":         {"scheduler: {name: kube-scheduler}", "scheduler.leaderElection.leaseName", "separate name"},
		"queue sorts":           {"scheduler: {profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {disabled: [{name: '*'}], enabled: [{name: Other}]}}}]}", "scheduler.profiles[1].plugins.queueSort", "enable the same queueSort plugin in all profiles"},
		"removed plugin":        {"scheduler: {profiles: [{schedulerName: a, plugins: {filter: {enabled: [{name: EBSLimits}]}}}]}", "scheduler.profiles[0].plugins.filter.enabled[0]", "remove the plugin"},
		"plugin arguments":      {"scheduler: {profiles: [{schedulerName: a, pluginConfig: [{name: NodeAffinity, args: {added: 1}}]}]}", "scheduler.profiles[0].pluginConfig[0].args", `unknown field "added"`},
		"arguments to correct":  {"scheduler: {profiles: [{schedulerName: a}, {schedulerName: b, pluginConfig: [{name: NodeAffinity, args: {}}, {name: InterPodAffinity, args: {hard: 1}}]}]}", "scheduler.profiles[1].pluginConfig[1].args", "names the arguments of InterPodAffinity"},
		"plugin argument value": {"scheduler: {profiles: [{schedulerName: a, pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 900}}]}]}", "scheduler.profiles[0].pluginConfig[0].args.hardPodAffinityWeight", "correct the value or remove it"},
		"plugin weight":         {"scheduler: {profiles: [{schedulerName: a, plugins: {score: {enabled: [{name: NodeResourcesFit, weight: -1}]}}}]}", "scheduler.profiles[0].plugins.score.enabled[0].weight", "at least 1"},
		"fit weight":            {"scheduler: {profiles: [{schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}}}]}]}", "scheduler.profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight", "not in valid range"},
		"unknown plugin":        {"scheduler: {profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: tunnelReach}]}}}]}", "scheduler.profiles[0].plugins.multiPoint.enabled[0].name", "correct the name to TunnelReach"},
		"absent plugin":         {"scheduler: {profiles: [{schedulerName: a, pluginConfig: [{name: TunnelReach, args: {}}]}]}", "scheduler.profiles[0].pluginConfig[0].name", "enable it under plugins, or remove them"},
		"disabled plugin":       {"scheduler: {profiles: [{schedulerName: a, plugins: {multiPoint: {disabled: [{name: InterPodAffinity}]}}, pluginConfig: [{name: InterPodAffinity, args: {}}]}]}", "scheduler.profiles[0].pluginConfig[0].name", "not enabled"},
		"own plugin's argument": {"scheduler: {profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: TunnelReach}]}}, pluginConfig: [{name: TunnelReach, args: {modus: Require}}]}]}", "scheduler.profiles[0].pluginConfig[0].args", `unknown field "modus"`},
		"own plugin's value":    {"scheduler: {profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: FailoverBarrier}]}}, pluginConfig: [{name: FailoverBarrier, args: {timeout: 2m}}]}]}", "scheduler.profiles[0].pluginConfig[0].args.timeout", "between 100ms and 1m"},
		"built-in name twice":   {"scheduler: {builtInProfiles: {batch: {schedulerName: a}, spread: {schedulerName: a}}}", "scheduler.builtInProfiles.batch.schedulerName", "rename one"},
		"built-in and own name": {"scheduler: {profiles: [{schedulerName: a}], builtInProfiles: {batch: {schedulerName: a}}}", "scheduler.builtInProfiles.batch.schedulerName", "scheduler.profiles[0]"},
		"built-in default name": {"scheduler: {builtInProfiles: {batch: {schedulerName: default-scheduler}}}", "scheduler.builtInProfiles.batch.schedulerName", "fight"},
		"binpack weight":        {"scheduler: {builtInProfiles: {binpack: {weight: 101}}}", "scheduler.builtInProfiles.binpack.weight", "between 1 and 100"},
		"binpack resource":      {"scheduler: {builtInProfiles: {binpack: {resources: [{name: cpu, weight: 0}]}}}", "scheduler.builtInProfiles.binpack.resources[0].weight", "between 1 and 100"},
		"binpack nothing":       {"scheduler: {builtInProfiles: {binpack: {resources: []}}}", "scheduler.builtInProfiles.binpack.resources", "at least one resource"},
		"spread skew":           {"scheduler: {builtInProfiles: {spread: {maxSkew: 0}}}", "scheduler.builtInProfiles.spread.maxSkew", "at least 1"},
		"spread keys":           {"scheduler: {builtInProfiles: {spread: {topologyKeys: [a, a]}}}", "scheduler.builtInProfiles.spread.topologyKeys[1]", "Duplicate"},
		"batch placement":       {"scheduler: {builtInProfiles: {batch: {placement: Random}}}", "scheduler.builtInProfiles.batch.placement", `"Pack", "Spread"`},
		"batch percentage":      {"scheduler: {builtInProfiles: {batch: {percentageOfNodesToScore: 101}}}", "scheduler.builtInProfiles.batch.percentageOfNodesToScore", "between 0 and 100"},
		"reach without tunnel":  {"scheduler: {builtInProfiles: {batch: {}}, plugins: {tunnelReach: {enabled: true}}}\nkonnectivity: {enabled: false}", "scheduler.plugins.tunnelReach.enabled", "set that to true, or this to false"},
		"reach without, own":    {"scheduler: {profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: TunnelReach}]}}}]}\nkonnectivity: {enabled: false}", "scheduler.profiles[0].plugins", "leave the plugin out"},
		"reach mode":            {"scheduler: {plugins: {tunnelReach: {mode: Maybe}}}", "scheduler.plugins.tunnelReach.mode", `"Prefer", "Require"`},
		"partition labels":      {"scheduler: {partition: {}}", "scheduler.partition.nodeLabels", "name the labels"},
		"partition label":       {"scheduler: {partition: {nodeLabels: {'a b': c}}}", "scheduler.partition.nodeLabels", "a b"},
		"partition taint":       {"scheduler: {partition: {nodeLabels: {a: b}, taint: {key: a}}}", "scheduler.partition.taint.effect", "NoSchedule"},
		"partition soft taint":  {"scheduler: {partition: {nodeLabels: {a: b}, taint: {key: a, effect: PreferNoSchedule}}}", "scheduler.partition.taint.effect", "use NoSchedule"},
		"partition and own":     {"scheduler: {partition: {nodeLabels: {a: b}}, profiles: [{schedulerName: a, pluginConfig: [{name: NodeAffinity, args: {}}]}]}", "scheduler.profiles[0].pluginConfig[0]", "remove these, or the partition"},
		"assignment profile":    {"scheduler: {assignments: [{schedulerName: b, podSelector: {matchLabels: {a: b}}}]}", "scheduler.assignments[0].schedulerName", `"my-scheduler"`},
		"assignment of all":     {"scheduler: {assignments: [{}]}", "scheduler.assignments[0].namespaceSelector", "every Pod"},
		"assignment selector":   {"scheduler: {assignments: [{podSelector: {matchLabels: {'a b': c}}}]}", "scheduler.assignments[0].podSelector.matchLabels", "a b"},
		"skew of no key":        {"scheduler: {builtInProfiles: {spread: {maxSkew: 3}}}", "scheduler.builtInProfiles.spread.maxSkew", "set topologyKeys"},
		"reach not enabled":     {"scheduler: {plugins: {tunnelReach: {mode: Require}}}", "scheduler.plugins.tunnelReach.mode", "set spec.scheduler.plugins.tunnelReach.enabled to true"},
		"reach not automatic":   {"scheduler: {plugins: {tunnelReach: {automatic: false}}}", "scheduler.plugins.tunnelReach.automatic", "not enabled"},
		"evict without plugin":  {"scheduler: {plugins: {politePreemption: {enabled: false, evict: [x]}}}", "scheduler.plugins.politePreemption.evict", "or remove the field"},
		"ignore without plugin": {"scheduler: {plugins: {foreignNominations: {enabled: false, ignore: [x]}}}", "scheduler.plugins.foreignNominations.ignore", "not enabled"},
		"reach of no profile":   {"scheduler: {profiles: [{schedulerName: a}], plugins: {tunnelReach: {enabled: true}}}", "scheduler.plugins.tunnelReach.enabled", "add a profile under scheduler.builtInProfiles"},
		"reach of own image":    {"scheduler: {image: 'a.example/scheduler:v9', plugins: {tunnelReach: {enabled: true}}}", "scheduler.plugins.tunnelReach.enabled", "no built-in profile"},
		"barrier of no profile": {"scheduler: {profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: FailoverBarrier}]}}}], plugins: {failoverBarrier: {timeout: 9s}}}", "scheduler.plugins.failoverBarrier.timeout", "enable and configure the plugin in these"},
		"evict of no profile":   {"scheduler: {profiles: [{schedulerName: a}], plugins: {politePreemption: {evict: [x]}}}", "scheduler.plugins.politePreemption.evict", "take nothing from here"},
		"off here, on there":    {"scheduler: {profiles: [{schedulerName: a}, {schedulerName: b, plugins: {multiPoint: {enabled: [{name: FailoverBarrier}]}}}], plugins: {failoverBarrier: {enabled: false}}}", "scheduler.plugins.failoverBarrier.enabled", "scheduler.profiles[1] enables the plugin"},
		"barrier timeout":       {"scheduler: {plugins: {failoverBarrier: {timeout: 1ms}}}", "scheduler.plugins.failoverBarrier.timeout", "between 100ms and 1m"},
	})
}

// TestLoadRefusesScheduler: the scheduler's other values.
// It observes SCHED-24, SCHED-36, SCHED-37 and SCHED-38 of docs/requirements.md.
func TestLoadRefusesScheduler(t *testing.T) {
	refuses(t, map[string]refusal{
		"percentage":            {"scheduler: {percentageOfNodesToScore: 101}", "scheduler.percentageOfNodesToScore", "0-100"},
		"replicas":              {"scheduler: {replicas: 0}", "scheduler.replicas", "at least 1"},
		"delayed cache":         {"scheduler: {delayCacheUntilActive: true}", "scheduler.delayCacheUntilActive", "remove it"},
		"delayed cache of one":  {"scheduler: {replicas: 1, delayCacheUntilActive: true}", "scheduler.delayCacheUntilActive", "ready only once it leads"},
		"coordinated election":  {"scheduler: {featureGates: {CoordinatedLeaderElection: true}}", "scheduler.featureGates[CoordinatedLeaderElection]", "remove it"},
		"gate of two":           {"scheduler: {featureGates: {GangScheduling: true}}", "scheduler.featureGates[GangScheduling]", "depends on"},
		"all alpha gates":       {"scheduler: {builtInProfiles: {spread: {}}, featureGates: {AllAlpha: true}}", "scheduler.featureGates", "WorkloadAwarePreemption: false"},
		"no batching":           {"scheduler: {builtInProfiles: {batch: {}}, featureGates: {OpportunisticBatching: false}}", "scheduler.featureGates", "leave it on"},
		"unknown gate":          {"scheduler: {featureGates: {NoSuchGate: true}}", "scheduler.featureGates[NoSuchGate]", "unrecognized feature gate"},
		"lease and renew":       {"scheduler: {leaderElection: {renewDeadline: 15s}}", "scheduler.leaderElection.leaseDuration", "greater than leaderElection.renewDeadline"},
		"renew and retry":       {"scheduler: {leaderElection: {retryPeriod: 9s}}", "scheduler.leaderElection.renewDeadline", "1.2 times"},
		"short lease":           {"scheduler: {leaderElection: {leaseDuration: 900ms, renewDeadline: 500ms, retryPeriod: 100ms}}", "scheduler.leaderElection.leaseDuration", "at least 1s"},
		"retry":                 {"scheduler: {leaderElection: {retryPeriod: -1s}}", "scheduler.leaderElection.retryPeriod", "greater than zero"},
		"qps":                   {"scheduler: {clientConnection: {qps: 0}}", "scheduler.clientConnection.qps", "greater than zero"},
		"burst":                 {"scheduler: {clientConnection: {burst: 0}}", "scheduler.clientConnection.burst", "at least 1"},
		"content type":          {"scheduler: {clientConnection: {contentType: text/plain}}", "scheduler.clientConnection.contentType", "application/json"},
		"secure port":           {"scheduler: {securePort: 443}", "scheduler.securePort", "1024"},
		"scheduler name":        {"scheduler: {name: konnectivity-agent}", "scheduler.name", "choose another"},
		"own flag":              {"scheduler: {extraArgs: [{name: secure-port, value: '1'}]}", "scheduler.extraArgs[0].name", "set scheduler.securePort"},
		"own flag, underscores": {"scheduler: {extraArgs: [{name: secure_port, value: '1'}]}", "scheduler.extraArgs[0].name", "set scheduler.securePort"},
		"election flag":         {"scheduler: {extraArgs: [{name: leader-elect-resource-name, value: kube-scheduler}]}", "scheduler.extraArgs[0].name", "leaderElection.leaseName"},
		"gate flag":             {"scheduler: {extraArgs: [{name: feature-gates, value: CoordinatedLeaderElection=true}]}", "scheduler.extraArgs[0].name", "scheduler.featureGates"},
		"flag with dashes":      {"scheduler: {extraArgs: [{name: --v, value: '4'}]}", "scheduler.extraArgs[0].name", "without dashes"},
		"flag without name":     {"scheduler: {extraArgs: [{value: '4'}]}", "scheduler.extraArgs[0].name", "without dashes"},
		"flag twice":            {"scheduler: {extraArgs: [{name: v, value: '4'}, {name: v, value: '5'}]}", "scheduler.extraArgs[1].name", "Duplicate"},
		"resources":             {"scheduler: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}}", "scheduler.resources.requests[cpu]", "must not exceed"},
		"stock image":           {"scheduler: {image: 'registry.k8s.io/kube-scheduler:v1.36.1', builtInProfiles: {batch: {}}}", "scheduler.image", "fairlead-batch enables PolitePreemption, ForeignNominations, FailoverBarrier, which it does not have"},
		"stock image, own":      {"scheduler: {image: 'registry.k8s.io/kube-scheduler:v1.36.1', profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: TunnelReach}]}}}]}", "scheduler.image", "a enables TunnelReach"},
		"mirrored image":        {"scheduler: {image: 'a.example:5000/b/fairlead-scheduler:v0.1.0@sha256:" + strings.Repeat("0", 64) + "', profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: Nobody}]}}}]}", "scheduler.profiles[0].plugins.multiPoint.enabled[0].name", "does not have this plugin"},
		"field of 1.36":         {"scheduler: {image: 'registry.k8s.io/kube-scheduler:v1.35.4', profiles: [{schedulerName: a, plugins: {placementGenerate: {disabled: [{name: '*'}]}}}]}", "scheduler.profiles[0].plugins.placementGenerate", "since 1.36, and scheduler.image registry.k8s.io/kube-scheduler:v1.35.4 is of v1.35.4"},
		"second field of 1.36":  {"scheduler: {image: 'registry.k8s.io/kube-scheduler:v1.35.4@sha256:0000000000000000000000000000000000000000000000000000000000000000', profiles: [{schedulerName: a}, {schedulerName: b, plugins: {placementScore: {disabled: [{name: '*'}]}}}]}", "scheduler.profiles[1].plugins.placementScore", "since 1.36"},
		"stock image's plugin":  {"scheduler: {image: 'a.example:5000/kube-scheduler:v1.36.0', profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: Nobody}]}}}]}", "scheduler.profiles[0].plugins.multiPoint.enabled[0].name", "does not have this plugin"},
		"image":                 {"scheduler: {image: 'a b'}", "scheduler.image", "without blanks"},
		"toleration key":        {"scheduler: {tolerations: [{effect: NoSchedule}]}", "scheduler.tolerations[0].key", "operator Exists"},
		"toleration value":      {"scheduler: {tolerations: [{operator: Exists, key: a, value: b}]}", "scheduler.tolerations[0].value", "must be empty"},
		"toleration effect":     {"scheduler: {tolerations: [{operator: Exists, effect: Never}]}", "scheduler.tolerations[0].effect", "NoExecute"},
		"negative resources":    {"scheduler: {resources: {requests: {cpu: -1}}}", "scheduler.resources.requests[cpu]", "negative"},
		"toleration":            {"scheduler: {tolerations: [{operator: Exits}]}", "scheduler.tolerations[0].operator", "Exists"},
		"node selector":         {"scheduler: {nodeSelector: {'a b': c}}", "scheduler.nodeSelector", "a b"},
	})
}

// TestLoadRefusesTransport: Load rejects invalid connections from kube-apiserver
// to the server.
// It observes KON-04 and KON-05 of docs/requirements.md.
func TestLoadRefusesTransport(t *testing.T) {
	long := "/run/" + strings.Repeat("x", 100) + "/s.sock"
	tcp := func(more string) string {
		return "konnectivity: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://127.0.0.1:8131', " +
			"clientCert: /etc/kubernetes/pki/c.crt, clientKey: /etc/kubernetes/pki/c.key, clientCA: /etc/kubernetes/pki/ca.crt" + more + "}}}"
	}
	refuses(t, map[string]refusal{
		"protocol":         {"konnectivity: {proxyProtocol: grpc}", "konnectivity.proxyProtocol", "GRPC"},
		"long socket":      {"konnectivity: {transport: {uds: {path: " + long + "}}}", "konnectivity.transport.uds.path", "at most 107"},
		"relative socket":  {"konnectivity: {transport: {uds: {path: run/s.sock}}}", "konnectivity.transport.uds.path", "absolute"},
		"socket with ..":   {"konnectivity: {transport: {uds: {path: /run/a/../s.sock}}}", "konnectivity.transport.uds.path", "without .."},
		"socket as URL":    {"konnectivity: {transport: {uds: {path: 'unix:///run/a/s.sock'}}}", "konnectivity.transport.uds.path", "without unix://"},
		"shared directory": {"konnectivity: {transport: {uds: {path: /run/s.sock}}}", "konnectivity.transport.uds.path", "separate directory"},
		"egress directory": {"konnectivity: {transport: {uds: {path: /etc/kubernetes/konnectivity/s.sock}}}", "konnectivity.transport.uds.path", "read-only"},
		"both transports":  {"konnectivity: {transport: {uds: {}, tcp: {url: 'https://a:8131'}}}", "konnectivity.transport", "remove one"},
		"GRPC over TCP":    {"konnectivity: {transport: {tcp: {url: 'https://a:8131'}}}", "konnectivity.transport.tcp", "Unix socket only"},
		"no port":          {strings.Replace(tcp(""), ":8131", "", 1), "konnectivity.transport.tcp.url", "names no port"},
		"http":             {strings.Replace(tcp(""), "https", "http", 1), "konnectivity.transport.tcp.url", "no plain http"},
		"no client cert":   {strings.Replace(tcp(""), "clientCert", "caBundle", 1), "konnectivity.transport.tcp.clientCert", "give the file"},
		"no client CA":     {strings.Replace(tcp(""), "clientCA", "caBundle", 1), "konnectivity.transport.tcp.clientCA", "give the file"},
		"half a pair":      {tcp(", serverCert: /etc/kubernetes/pki/s.crt"), "konnectivity.transport.tcp.serverKey", "give the file"},
		"not mounted":      {tcp(", caBundle: /tmp/ca.crt"), "konnectivity.transport.tcp.caBundle", "below controlPlane.pkiDir"},
		"name with comma":  {tcp(", clientNames: ['a,b']"), "konnectivity.transport.tcp.clientNames[0]", "without a comma"},
		"transport port":   {strings.Replace(tcp(""), "8131", "8132", 1), "konnectivity.transport.tcp.url", "agentPort"},
	})
}

// TestLoadRefusesKonnectivity: server and agents.
// It observes KON-51, KON-65, KON-74 and KON-78 of docs/requirements.md.
func TestLoadRefusesKonnectivity(t *testing.T) {
	refuses(t, map[string]refusal{
		"sample host":     {"konnectivity: {serverHost: 35.225.206.7}", "konnectivity.serverHost", "your control plane"},
		"host with port":  {"konnectivity: {serverHost: 'a:8132'}", "konnectivity.serverHost", "without scheme, port"},
		"host as URL":     {"konnectivity: {serverHost: 'https://a'}", "konnectivity.serverHost", "without scheme, port"},
		"reserved port":   {"konnectivity: {agentPort: 80}", "konnectivity.agentPort", "reserved"},
		"ephemeral port":  {"konnectivity: {server: {healthPort: 50000}}", "konnectivity.server.healthPort", "ephemeral"},
		"health address":  {"konnectivity: {server: {healthBindAddress: localhost}}", "konnectivity.server.healthBindAddress", "must be an IP address"},
		"agent's port":    {"konnectivity: {agent: {adminPort: 8134}}", "konnectivity.agent.healthPort", "konnectivity.agent.adminPort"},
		"server's ports":  {"konnectivity: {agentPort: 8133}", "konnectivity.server.adminPort", "konnectivity.agentPort"},
		"node's port":     {"konnectivity: {agentPort: 6443}", "konnectivity.agentPort", "kube-apiserver"},
		"host network":    {"konnectivity: {agent: {hostNetwork: true}}", "konnectivity.agent.adminPort", "share the control plane node"},
		"server form":     {"konnectivity: {server: {form: Deployment}}", "konnectivity.server.form", "StaticPod"},
		"agent form":      {"konnectivity: {agent: {form: StaticPod}}", "konnectivity.agent.form", "DaemonSet"},
		"count":           {"konnectivity: {server: {count: 0}}", "konnectivity.server.count", "at least 1"},
		"lease namespace": {"konnectivity: {leaseNamespace: a.b}", "konnectivity.leaseNamespace", "a.b"},
		"two countings":   {"konnectivity: {leaseCounting: true, server: {count: 3}}", "konnectivity.server.count", "remove one"},
		"server cert":     {"konnectivity: {server: {certFile: /etc/x.crt, keyFile: /etc/kubernetes/pki/x.key}}", "konnectivity.server.certFile", "below controlPlane.pkiDir"},
		"server pair":     {"konnectivity: {server: {certFile: /etc/kubernetes/pki/x.crt}}", "konnectivity.server.keyFile", "give the file"},
		"agent replicas":  {"konnectivity: {agent: {form: Deployment, replicas: 0}}", "konnectivity.agent.replicas", "nothing gets through"},
		"identifiers":     {"konnectivity: {agent: {identifiers: 'ip=1.2.3.4'}}", "konnectivity.agent.identifiers", "ipv4"},
		"strategy":        {"konnectivity: {server: {proxyStrategies: [nearest]}}", "konnectivity.server.proxyStrategies[0]", "destHost"},
		"strategy twice":  {"konnectivity: {server: {proxyStrategies: [default, default]}}", "konnectivity.server.proxyStrategies[1]", "Duplicate"},
		"destHost alone":  {"konnectivity: {server: {proxyStrategies: [destHost, default]}}", "konnectivity.server.proxyStrategies", "host=$(NODE_NAME)"},
		"destHost last":   {"konnectivity: {agent: {identifiers: 'host=$(NODE_NAME)'}, server: {proxyStrategies: [destHost]}}", "konnectivity.server.proxyStrategies", "add default or defaultRoute behind it"},
		"range":           {"konnectivity: {agent: {identifiers: 'cidr=10.0.0.0/8'}}", "konnectivity.agent.identifiers", "ipv4"},
		"variable":        {"konnectivity: {agent: {identifiers: 'ipv4=$(HOST_IPS)'}, server: {proxyStrategies: [destHost, default]}}", "konnectivity.agent.identifiers", "names a variable that is not set"},
		"port":            {"konnectivity: {agent: {identifiers: 'ipv4=1.2.3.4:80'}, server: {proxyStrategies: [destHost, default]}}", "konnectivity.agent.identifiers", "remove the port"},
		"route is yes":    {"konnectivity: {agent: {identifiers: 'default-route=yes'}}", "konnectivity.agent.identifiers", "neither true nor false"},
		"no route":        {"konnectivity: {agent: {identifiers: default-route=false}, server: {proxyStrategies: [defaultRoute]}}", "konnectivity.server.proxyStrategies", "default-route=true"},
		"unused hosts":    {"konnectivity: {agent: {identifiers: 'ipv6=$(HOST_IP)'}}", "konnectivity.agent.identifiers", "add destHost to konnectivity.server.proxyStrategies"},
		"unused route":    {"konnectivity: {agent: {identifiers: default-route=true}, server: {proxyStrategies: [default]}}", "konnectivity.agent.identifiers", "add defaultRoute"},
		"strategies flag": {"konnectivity: {server: {extraArgs: [{name: proxy-strategies, value: default}]}}", "konnectivity.server.extraArgs[0].name", "set konnectivity.server.proxyStrategies"},
		"service account": {"konnectivity: {agentServiceAccount: my-scheduler}", "scheduler.name", "choose another"},

		// Only extraArgs could make the ports, or the token audiences, of server and
		// agent differ.
		"server's agent port": {"konnectivity: {server: {extraArgs: [{name: agent-port, value: '9'}]}}", "konnectivity.server.extraArgs[0].name", "set konnectivity.agentPort"},
		"agent's server port": {"konnectivity: {agent: {extraArgs: [{name: proxy-server-port, value: '9'}]}}", "konnectivity.agent.extraArgs[0].name", "set konnectivity.agentPort"},
		"server's audience":   {"konnectivity: {server: {extraArgs: [{name: authentication-audience, value: x}]}}", "konnectivity.server.extraArgs[0].name", "set konnectivity.authenticationAudience"},
		"server's socket":     {"konnectivity: {server: {extraArgs: [{name: uds-name, value: /x}]}}", "konnectivity.server.extraArgs[0].name", "set konnectivity.transport.uds.path"},
		"cluster CA":          {"konnectivity: {server: {extraArgs: [{name: cluster-ca-cert, value: /x}]}}", "konnectivity.server.extraArgs[0].name", "tokens"},
	})
}

// TestLoadRefusesTheRest: what belongs to neither of the two.
func TestLoadRefusesTheRest(t *testing.T) {
	refuses(t, map[string]refusal{
		"namespace":    {"namespace: Kube_System", "namespace", "lower case"},
		"algorithm":    {"pki: {algorithm: RSA-1024}", "pki.algorithm", "RSA-2048"},
		"validity":     {"pki: {validity: 0s}", "pki.validity", "greater than zero"},
		"CA validity":  {"pki: {caValidity: -1h}", "pki.caValidity", "greater than zero"},
		"any name":     {"aggregation: {allowedNames: []}", "aggregation.allowedNames", "every certificate"},
		"blank name":   {"aggregation: {allowedNames: [' ']}", "aggregation.allowedNames[0]", "not blank"},
		"name twice":   {"aggregation: {allowedNames: [a, a]}", "aggregation.allowedNames[1]", "Duplicate"},
		"PKI dir":      {"controlPlane: {pkiDir: pki}", "controlPlane.pkiDir", "absolute"},
		"egress file":  {"controlPlane: {egressSelectorFile: /etc/kubernetes/egress.yaml}", "controlPlane.egressSelectorFile", "separate directory"},
		"egress in /":  {"controlPlane: {egressSelectorFile: /egress.yaml}", "controlPlane.egressSelectorFile", "separate directory"},
		"manifest dir": {"controlPlane: {manifestsDir: /etc/../x}", "controlPlane.manifestsDir", "absolute"},
	})
}
