// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// fault breaks one thing in a healthy cluster.
type fault struct {
	id string
	// warning is the result that is expected in place of failed.
	warning bool
	do      func(w *world)
}

// TestEachFaultHasItsID proves that each rule sees what it is for, and that no other rule reports the same fault: what depends on it is
// skipped, and names it. Every rule has a fault here.
func TestEachFaultHasItsID(t *testing.T) {
	covered := map[string]bool{}
	for _, f := range faults() {
		covered[f.id] = true
		t.Run(f.id, func(t *testing.T) {
			w := healthy(t)
			f.do(w)
			want := rules.Failed
			if f.warning {
				want = rules.Warning
			}
			got := map[string]rules.Status{}
			for _, r := range rules.Judge(w.Snapshot, rules.Options{Before: strings.HasPrefix(f.id, "FL-PRE")}).Checks {
				if r.Status != rules.OK && r.Status != rules.Skipped {
					got[r.ID] = r.Status
				}
				if r.ID == f.id && len(r.Findings) > 0 && r.Findings[0].Fix == "" {
					t.Errorf("no fix for %q", r.Findings[0].Message)
				}
			}
			if diff := cmp.Diff(map[string]rules.Status{f.id: want}, got); diff != "" {
				t.Errorf("results that are not ok (-want +got):\n%s", diff)
			}
		})
	}
	for _, r := range rules.All() {
		if !covered[r.ID] {
			t.Errorf("%s has no fault", r.ID)
		}
	}
}

// TestHealthy proves that nothing is reported of a healthy cluster, before and after an installation.
func TestHealthy(t *testing.T) {
	for _, before := range []bool{false, true} {
		w := healthy(t)
		if before {
			w.Programs.Value = nil
		}
		for _, r := range rules.Judge(w.Snapshot, rules.Options{Before: before}).Checks {
			if r.Status != rules.OK && r.Status != rules.Skipped {
				t.Errorf("before %v: %s is %s: %s %+v", before, r.ID, r.Status, r.Reason, r.Findings)
			}
		}
	}
}

func faults() []fault {
	var out []fault
	for _, list := range [][]fault{apiFaults(), beforeFaults(), tunnelFaults(), flagFaults(), serverFaults(), schedulerFaults(), extensionFaults(), certificateFaults()} {
		out = append(out, list...)
	}
	return out
}

func apiFaults() []fault {
	return []fault{
		{"FL-API-001", false, func(w *world) { w.Reach.Err = errors.New("connection refused") }},
		{"FL-API-002", false, func(w *world) { w.Ready.Value = "[+]ping ok\n[-]etcd failed: reason withheld\n" }},
		{"FL-API-003", false, func(w *world) { w.Nodes.Value[0].Status.NodeInfo.KubeletVersion = "v1.37.0" }},
		{"FL-API-004", false, func(w *world) { w.Authentication.Value["requestheader-client-ca-file"] = pemOf(w.ca.cert) }},
		{"FL-API-005", false, func(w *world) { w.Authentication.Value["requestheader-allowed-names"] = "[]" }},
		{"FL-API-006", true, func(w *world) { w.Reach.Value.Skew = 7 * time.Second }},
		{"FL-API-007", true, func(w *world) {
			w.APIServers.Value["Pod kube-system/kube-apiserver-cp"] = []string{"kube-apiserver", "--egress-selector-config-file=/x"}
		}},
		{"FL-API-008", true, func(w *world) { w.Proxy = observe.Known("http://proxy:3128") }},
		{"FL-API-009", true, func(w *world) { w.Denied = observe.Known([]string{"list nodes"}) }},
		{"FL-API-010", true, func(w *world) { w.NodeLeases.Value[1].Spec.RenewTime.Time = now.Add(-5 * time.Minute) }},
		{"FL-API-011", true, func(w *world) { w.Nodes.Value[1].Status.Conditions[0].Status = corev1.ConditionUnknown }},
		{"FL-API-012", false, func(w *world) { w.OtherReviews.Value[0].Allowed = false }},
		{"FL-API-012", false, func(w *world) { w.OtherReviews.Value[1].Allowed = false }},
	}
}

func beforeFaults() []fault {
	// An installation has not happened yet.
	bare := func(do func(w *world)) func(w *world) {
		return func(w *world) { w.Programs.Value = nil; do(w) }
	}
	out := []fault{
		{"FL-PRE-001", false, bare(func(w *world) { w.Missing = observe.Known([]string{"create nodes"}) })},
		{"FL-PRE-010", false, bare(func(w *world) {
			w.Blocked = observe.Known([]install.Problem{{Object: install.Ref{Kind: "Deployment", Name: "my-scheduler"}, Message: "belongs to another"}})
		})},
		{"FL-PRE-011", true, bare(func(w *world) { w.Validating.Value[0].Webhooks[0].Rules = podRules() })},
		{"FL-PRE-012", false, func(w *world) {
			w.all(check.RoleAgent, func(p *observe.Program) { p.Image = "registry.k8s.io/kas-network-proxy/proxy-agent:v0.36.0" })
		}},
	}
	for id, finding := range map[string]string{
		"FL-PRE-002": install.FindingVersion, "FL-PRE-003": install.FindingManaged, "FL-PRE-004": install.FindingNoNodes, "FL-PRE-005": install.FindingSimulated,
		"FL-PRE-006": install.FindingCount, "FL-PRE-007": install.FindingLease, "FL-PRE-008": install.FindingPartition, "FL-PRE-009": install.FindingInUse,
	} {
		out = append(out, fault{id, false, bare(func(w *world) { w.Preflight = observe.Known([]install.Finding{{ID: finding, Message: "wrong"}}) })})
	}
	return out
}

func podRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, Resources: []string{"pods"}}}}
}

func tunnelFaults() []fault {
	return []fault{
		{"FL-KON-001", false, func(w *world) {
			w.Programs.Value = append(observe.Of(w.Programs.Value, check.RoleServer), observe.Of(w.Programs.Value, check.RoleScheduler)...)
			w.DaemonSets.Value = nil
			w.Kubelets = map[string]error{"a": errDark, "b": errDark}
		}},
		{"FL-KON-002", false, func(w *world) {
			// Neither its ports nor its socket are open then.
			p := w.find(check.RoleServer)
			p.Ready = false
			w.ServerMetrics[p.Name] = observe.Fact[observe.Metrics]{Err: errors.New("connection refused")}
			w.Shown[p.Name] = observe.Fact[[]*x509.Certificate]{Err: errors.New("connection refused")}
			w.Node.Value.Socket.Err = errors.New("no such file")
		}},
		{"FL-KON-003", false, func(w *world) { w.all(check.RoleAgent, func(p *observe.Program) { p.Ready = false }); w.Kubelets = nil }},
		{"FL-KON-004", false, func(w *world) { w.DaemonSets.Value[0].Status.DesiredNumberScheduled = 3 }},
		{"FL-KON-005", true, func(w *world) {
			w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricBackends, 1))
		}},
		{"FL-KON-006", false, func(w *world) { w.Kubelets["b"] = errors.New("No agent available") }},
		{"FL-KON-007", false, func(w *world) { setFlag(w.find(check.RoleServer), "--server-count=3") }},
		{"FL-KON-008", false, func(w *world) {
			w.all(check.RoleServer, func(p *observe.Program) { setFlag(p, "--enable-lease-controller=true") })
		}},
		{"FL-KON-009", false, func(w *world) {
			w.APIServers.Value["Pod kube-system/kube-apiserver-2"] = []string{"kube-apiserver", "--kubelet-certificate-authority=/ca"}
		}},
		{"FL-KON-010", true, func(w *world) {
			for name, family := range metric(observe.MetricEgressFailed, 50) {
				w.APIServerMetrics.Value[name] = family
			}
		}},
		{"FL-KON-011", true, func(w *world) {
			for name, family := range metric(observe.MetricTurnedAway, 4) {
				w.ServerMetrics[w.find(check.RoleServer).Name].Value[name] = family
			}
		}},
		{"FL-KON-012", true, func(w *world) { w.find(check.RoleAgent).Restarts = 9 }},
		{"FL-KON-013", false, func(w *world) {
			w.Nodes.Value[0].Status.NodeInfo.Architecture = "arm64"
			w.find(check.RoleScheduler).Image += "-amd64"
		}},
	}
}

func flagFaults() []fault {
	agents := func(edit func(*observe.Program)) func(w *world) {
		return func(w *world) { w.all(check.RoleAgent, edit) }
	}
	flags := func(arg string) func(w *world) { return agents(func(p *observe.Program) { setFlag(p, arg) }) }
	server := func(arg string) func(w *world) { return func(w *world) { setFlag(w.find(check.RoleServer), arg) } }
	return []fault{
		{"FL-KON-020", false, func(w *world) {
			w.APIServerMetrics = observe.Known(metric(observe.MetricEgressStart, 9, "protocol", "http_connect"))
		}},
		{"FL-KON-021", false, flags("--proxy-server-host=tunnel.example")},
		{"FL-KON-022", false, func(w *world) {
			w.Shown[w.find(check.RoleServer).Name] = observe.Known([]*x509.Certificate{w.fp.leaf(w.t, serverHost, now.Add(year))})
		}},
		{"FL-KON-023", false, flags("--proxy-server-port=9999")},
		{"FL-KON-024", false, server("--agent-namespace=")},
		{"FL-KON-025", false, server("--authentication-audience=other")},
		{"FL-KON-026", false, agents(func(p *observe.Program) { p.Pod.Spec.ServiceAccountName = "default" })},
		{"FL-KON-027", false, func(w *world) { w.Accounts.Value = []types.NamespacedName{} }},
		{"FL-KON-028", false, func(w *world) { w.Reviews.Value[1].Allowed = false }},
		{"FL-KON-034", false, func(w *world) { w.Reviews.Value[2].Allowed = false }},
		{"FL-KON-034", false, func(w *world) { w.Reviews.Value[3].Allowed = false }},
		{"FL-KON-029", false, func(w *world) {
			w.Policies = observe.Known([]networkingv1.NetworkPolicy{policy("kube-system", networkingv1.PolicyTypeEgress)})
		}},
		{"FL-KON-030", false, server("--proxy-strategies=destHost")},
		{"FL-KON-031", true, agents(func(p *observe.Program) {
			p.Image = "registry.k8s.io/kas-network-proxy/proxy-agent:" + observe.ImageTag(p.Image)
		})},
		{"FL-KON-032", true, agents(func(p *observe.Program) { p.Image = "fairlead-dev/konnectivity-agent:v9" })},
		{"FL-KON-033", true, agents(func(p *observe.Program) { p.Pod.Spec.PriorityClassName = "" })},
	}
}

// policy selects all Pods of a namespace, and allows them nothing.
func policy(namespace string, kind networkingv1.PolicyType) networkingv1.NetworkPolicy {
	return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "deny"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{kind}}}
}

func schedulerFaults() []fault {
	config := func(edit func(*schedulerv1.KubeSchedulerConfiguration)) func(w *world) {
		return func(w *world) {
			c := observe.Configuration{ConfigMap: types.NamespacedName{Namespace: "other", Name: "scheduler"}, Key: "config.yaml"}
			c.Config.LeaderElection.ResourceName, c.Config.LeaderElection.ResourceNamespace = "other", "other"
			edit(&c.Config)
			w.Configurations = observe.Known([]observe.Configuration{c})
		}
	}
	pending := func(name string, age time.Duration) func(w *world) {
		return func(w *world) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.Time{Time: now.Add(-age)}}, Spec: corev1.PodSpec{SchedulerName: name}}
			w.Pending = observe.Known([]corev1.Pod{pod})
		}
	}
	replicas := func(edit func(*observe.Program)) func(w *world) {
		return func(w *world) { w.all(check.RoleScheduler, edit) }
	}
	return []fault{
		{"FL-SCH-001", false, replicas(func(p *observe.Program) { p.Ready = false })},
		{"FL-SCH-002", false, func(w *world) { w.Leases.Value[0].Spec.RenewTime.Time = now.Add(-time.Minute) }},
		{"FL-SCH-002", false, func(w *world) { w.Leases.Value[0].Spec.RenewTime = nil }}, // someone has set the holder by hand
		{"FL-SCH-002", false, func(w *world) { w.Leases.Value[0].Spec.HolderIdentity = nil }},
		{"FL-SCH-003", false, func(w *world) { w.Leases.Value[0].Spec.HolderIdentity = ptr.To("intruder_1") }},
		{"FL-SCH-004", false, config(func(c *schedulerv1.KubeSchedulerConfiguration) {
			c.LeaderElection.ResourceNamespace, c.LeaderElection.ResourceName = "kube-system", "my-scheduler"
		})},
		{"FL-SCH-005", false, config(func(c *schedulerv1.KubeSchedulerConfiguration) {
			c.Profiles = []schedulerv1.KubeSchedulerProfile{{SchedulerName: ptr.To("my-scheduler")}}
		})},
		{"FL-SCH-006", false, func(w *world) { w.Leases.Value[1].Spec.HolderIdentity = ptr.To("my-scheduler-1_x") }},
		{"FL-SCH-007", false, func(w *world) { w.Reviews.Value[0].Allowed = false }},
		{"FL-SCH-008", true, func(w *world) { w.Deployments.Value[0].Spec.Replicas = ptr.To(int32(1)) }},
		{"FL-SCH-009", true, func(w *world) { w.PDBs.Value = nil }},
		{"FL-SCH-010", true, pending("no-such-scheduler", 3*time.Minute)},
		{"FL-SCH-011", true, pending("my-scheduler", time.Hour)},
		{"FL-SCH-012", false, func(w *world) {
			w.Bundle.Scheduler.Partition = &v1alpha1.Partition{NodeLabels: map[string]string{"pool": "x"}}
		}},
		{"FL-SCH-013", true, func(w *world) {
			w.Configurations = observe.Known([]observe.Configuration{{ConfigMap: types.NamespacedName{Namespace: "a", Name: "b"}, Err: errors.New("yaml: line 3")}})
		}},
		{"FL-SCH-014", true, func(w *world) { w.FlowSchemas.Value = w.FlowSchemas.Value[1:] }},
		{"FL-SCH-015", false, func(w *world) {
			w.Version = observe.Known(&version.Info{GitVersion: "v1.34.0"})
			for i := range w.Nodes.Value {
				w.Nodes.Value[i].Status.NodeInfo.KubeletVersion = "v1.34.0"
			}
		}},
		{"FL-SCH-016", true, replicas(func(p *observe.Program) { p.Node = "a" })},
	}
}

func extensionFaults() []fault {
	gone := func(name string) func(w *world) {
		return func(w *world) { delete(w.Services.Value, types.NamespacedName{Namespace: "shop", Name: name}) }
	}
	empty := func(name string) func(w *world) {
		return func(w *world) {
			key := types.NamespacedName{Namespace: "shop", Name: name}
			state := w.Services.Value[key]
			state.Ready, state.PodLabels, state.Targets = 0, nil, nil
			w.Services.Value[key] = state
		}
	}
	return []fault{
		{"FL-EXT-001", false, gone("admit")},
		{"FL-EXT-001", false, empty("admit")},
		{"FL-EXT-002", false, func(w *world) { w.APIServices.Value[0].Available = false }},
		{"FL-EXT-003", false, gone("convert")},
		{"FL-EXT-003", false, empty("convert")},
		{"FL-EXT-004", true, func(w *world) { w.CRDs.Value[0].Stored = []string{"v1beta1", "v1"} }},
		{"FL-EXT-005", true, func(w *world) { w.CRDs.Value[0].Strategy = "None" }},
		{"FL-EXT-006", true, func(w *world) { w.Validating.Value[0].Webhooks[0].Rules = podRules() }},
		{"FL-EXT-007", true, func(w *world) {
			w.Policies = observe.Known([]networkingv1.NetworkPolicy{policy("shop", networkingv1.PolicyTypeIngress)})
		}},
		{"FL-EXT-008", false, func(w *world) {
			w.APIServices.Value[0].Service = &observe.ServiceRef{Namespace: "shop", Name: "hook", Port: 8443}
		}},
	}
}

func certificateFaults() []fault {
	old := func(w *world) authority { return newAuthority(w.t, "old", now.Add(20*24*time.Hour)) }
	host := func(edit func(*observe.HostFacts)) func(w *world) { return func(w *world) { edit(&w.Node.Value) } }
	return []fault{
		{"FL-CRT-001", true, func(w *world) {
			w.Reach.Value.Certificates[0] = w.ca.leaf(w.t, "kube-apiserver", now.Add(48*time.Hour))
		}},
		// With an expired one the API server refuses this user, too: TestExpiredClientCertificate.
		{"FL-CRT-002", true, func(w *world) { w.ClientCert.Value = w.ca.leaf(w.t, "admin", now.Add(time.Hour)) }},
		{"FL-CRT-003", true, func(w *world) { w.Authentication.Value["client-ca-file"] = pemOf(old(w).cert) }},
		{"FL-CRT-004", true, func(w *world) { w.Authentication.Value["requestheader-client-ca-file"] = pemOf(old(w).cert) }},
		{"FL-CRT-005", true, func(w *world) {
			w.Shown[w.find(check.RoleServer).Name] = observe.Known([]*x509.Certificate{w.ca.leaf(w.t, serverHost, now.Add(time.Hour))})
		}},
		{"FL-CRT-006", true, func(w *world) { w.CRDs.Value[0].CABundle = []byte(pemOf(old(w).cert)) }},
		{"FL-CRT-007", true, func(w *world) {
			w.CSRs = observe.Known([]certificatesv1.CertificateSigningRequest{{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeletServingSignerName}}})
		}},
		{"FL-HST-001", false, host(func(h *observe.HostFacts) { h.Egress.Value.Selected = false })},
		{"FL-HST-002", false, host(func(h *observe.HostFacts) { h.Egress.Value.UDS = "/elsewhere.socket" })},
		{"FL-HST-003", false, host(func(h *observe.HostFacts) { h.Socket.Value.IsSocket = false })},
		{"FL-HST-004", false, host(func(h *observe.HostFacts) { h.Socket.Value.Mode, h.Socket.Value.Parent = 0o777, 0o755 })},
		{"FL-HST-004", false, host(func(h *observe.HostFacts) {
			h.Socket.Value.Mode, h.Socket.Value.Parent, h.Socket.Value.Group = 0o770, 0o755, 1000
		})},
		{"FL-HST-004", false, host(func(h *observe.HostFacts) { h.Socket.Value.Owner = 1000 })},
		{"FL-HST-006", true, func(w *world) {
			w.Node.Value.Own[0].Leaf.Value = w.ca.leaf(w.t, "front-proxy-client", now.Add(24*time.Hour))
		}},
		{"FL-HST-006", false, func(w *world) {
			w.Node.Value.Own[0].Leaf.Value = w.ca.leaf(w.t, "front-proxy-client", now.Add(-time.Minute))
		}},
		{"FL-HST-006", false, host(func(h *observe.HostFacts) { h.Own[0].Leaf.Err = errors.New("no such file") })},
		{"FL-HST-005", false, host(func(h *observe.HostFacts) { h.Certificates.Value[0].State = controlplane.CertExpired })},
	}
}

// TestAPIServiceReasons proves that each reason for which kube-apiserver calls an APIService unavailable is explained under one ID, with
// a cause of its own and what to do. The messages are those of kube-apiserver's controller.
func TestAPIServiceReasons(t *testing.T) {
	failing := func(text string) string {
		return "failing or missing response from https://10.0.0.1:443/apis/shop.example/v1: " + text
	}
	get := `Get "https://10.0.0.1:443/apis/shop.example/v1": `
	for _, c := range []struct{ reason, message, cause, fix string }{
		{"", "", "has not checked it yet", "--watch"},
		{"ServiceNotFound", `service/hook in "shop" is not present`, "its Service does not exist", "kubectl delete apiservice v1.shop.example"},
		{"ServiceAccessError", `service/hook in "shop" cannot be checked due to: x`, "a fault of kube-apiserver", "/readyz?verbose"},
		{"EndpointsAccessError", `service/hook in "shop" cannot be checked due to: x`, "a fault of kube-apiserver", "/readyz?verbose"},
		{"ServicePortError", `service/hook in "shop" is not listening on port 443`, "does not have port 443", "kubectl patch apiservice v1.shop.example"},
		{"EndpointsNotFound", `cannot find endpointslices for service/hook in "shop"`, "no EndpointSlice belongs to its Service", "-n shop get endpointslices"},
		{"MissingEndpoints", `endpointslices for service/hook in "shop" have no addresses with port name "https"`, "no Pod behind its Service is ready", "-n shop get service hook"},
		{"FailedDiscoveryCheck", failing(get + "tls: failed to verify certificate: x509: certificate signed by unknown authority"), "spec.caBundle has not signed", "{.spec.caBundle}"},
		{"FailedDiscoveryCheck", failing(get + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: now"), "has expired", "Renew"},
		{"FailedDiscoveryCheck", failing(get + "tls: failed to verify certificate: x509: certificate is valid for a, not hook.shop.svc"), "is not for hook.shop.svc", "DNS name hook.shop.svc"},
		{"FailedDiscoveryCheck", failing("bad status from https://10.0.0.1:443/apis/shop.example/v1: 401"), "refuses kube-apiserver", "auth-delegator"},
		{"FailedDiscoveryCheck", failing("bad status from https://10.0.0.1:443/apis/shop.example/v1: 403"), "refuses kube-apiserver", "auth-delegator"},
		{"FailedDiscoveryCheck", failing("bad status from https://10.0.0.1:443/apis/shop.example/v1: 404"), "does not serve the group and version", "kubectl delete apiservice"},
		{"FailedDiscoveryCheck", failing("bad status from https://10.0.0.1:443/apis/shop.example/v1: 500"), "answers with an error", "logs service/hook"},
		{"FailedDiscoveryCheck", failing(get + "dial tcp 10.0.0.1:443: connect: connection refused"), "nothing listens", "logs service/hook"},
		{"FailedDiscoveryCheck", failing(get + "context deadline exceeded"), "it connects through the tunnel", "FL-KON-*"},
		{"SomethingNew", "x", "does not know", "kubectl describe apiservice"},
	} {
		w := healthy(t)
		a := &w.APIServices.Value[0]
		a.Available, a.Reason, a.Message = false, c.reason, c.message
		got := rules.Judge(w.Snapshot, rules.Options{Only: []string{"FL-EXT-002"}}).Checks[0]
		if got.Status != rules.Failed || len(got.Findings) != 1 {
			t.Errorf("%s: %+v", c.reason, got)
			continue
		}
		f := got.Findings[0]
		if !strings.Contains(f.Message, c.cause) || !strings.Contains(f.Message, c.message) || !strings.Contains(f.Fix, c.fix) {
			t.Errorf("%s: %q, fix %q", c.reason, f.Message, f.Fix)
		}
	}
	w := healthy(t)
	w.APIServices.Value[0].Available = false
	w.APIServices.Value[0].Reason = "FailedDiscoveryCheck"
	for name := range w.APIServers.Value {
		w.APIServers.Value[name] = []string{"kube-apiserver"}
	}
	w.APIServerMetrics.Value = nil // it has dialed nothing
	if got := rules.Judge(w.Snapshot, rules.Options{Only: []string{"FL-EXT-002"}}).Checks[0]; strings.Contains(got.Findings[0].Message, "tunnel") {
		t.Errorf("without an egress selector: %q", got.Findings[0].Message)
	}
}
