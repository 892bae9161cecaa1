// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

var errDark = errors.New("connection refused")

// second adds a server of which nothing can be read. Its name sorts before the other's, or after it.
func (w *world) second(name string) {
	p := *w.find(check.RoleServer)
	p.Name = "Pod kube-system/" + name
	w.Programs.Value = append(w.Programs.Value, p)
	w.ServerMetrics[p.Name] = observe.Fact[observe.Metrics]{Err: errDark}
	w.Shown[p.Name] = observe.Fact[[]*x509.Certificate]{Err: errDark}
}

// TestPartlyUnread proves that one thing that cannot be read hides no finding in another: what failed is failed, and a warning, which may not be the
// worst, is unknown. Both say what could not be read.
func TestPartlyUnread(t *testing.T) {
	forbidden := func(list string) error { return errors.New("list " + list + " is forbidden") }
	for name, tc := range map[string]struct {
		id, finding, reason string
		want                rules.Status
		do                  func(w *world)
	}{
		"a server without agents": {"FL-KON-005", "connected agents: 0", "connection refused", rules.Failed, func(w *world) {
			w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricBackends, 0))
		}},
		"a server with some agents": {"FL-KON-005", "connected agents: 1;", "connection refused", rules.Unknown, func(w *world) {
			w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricBackends, 1))
		}},
		"no finding": {"FL-KON-005", "", "connection refused", rules.Unknown, func(*world) {}},
		"turned away": {"FL-KON-011", "4 connections were refused", "connection refused", rules.Unknown, func(w *world) {
			w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricTurnedAway, 4))
		}},
		"certificate of another CA": {"FL-KON-022", "is not the cluster's CA", "connection refused", rules.Failed, func(w *world) {
			w.Shown[w.find(check.RoleServer).Name] = observe.Known([]*x509.Certificate{w.fp.leaf(w.t, serverHost, now.Add(year))})
		}},
		"agents not placed": {"FL-KON-004", "1 of its 3 Pods do not exist", "deployments is forbidden", rules.Failed, func(w *world) {
			w.DaemonSets.Value[0].Status.DesiredNumberScheduled = 3
			w.Deployments.Err = forbidden("deployments")
		}},
		"CA bundles": {"FL-CRT-006", "expires in", "webhooks is forbidden", rules.Unknown, func(w *world) {
			w.CRDs.Value[0].CABundle = []byte(pemOf(newAuthority(w.t, "old", now.Add(year/20)).cert))
			w.Mutating.Err = forbidden("webhooks")
		}},
		"ports": {"FL-EXT-008", "call its port 8443", "webhooks is forbidden", rules.Failed, func(w *world) {
			w.APIServices.Value[0].Service = &observe.ServiceRef{Namespace: "shop", Name: "hook", Port: 8443}
			w.Mutating.Err = forbidden("webhooks")
		}},
		"deadlock": {"FL-EXT-006", "must admit Pods", "webhooks is forbidden", rules.Unknown, func(w *world) {
			w.Validating.Value[0].Webhooks[0].Rules = podRules()
			w.Mutating = observe.Fact[[]admissionregistrationv1.MutatingWebhookConfiguration]{Err: forbidden("webhooks")}
		}},
		"rights": {"FL-KON-028", "may not create tokenreviews", "timed out", rules.Failed, func(w *world) {
			w.Reviews.Value[1].Allowed, w.Reviews.Err = false, errors.New("timed out")
		}},
		"backends": {"FL-EXT-001", "does not exist", "webhooks is forbidden", rules.Failed, func(w *world) {
			w.Services.Value = map[types.NamespacedName]observe.ServiceState{}
			w.Mutating.Err = forbidden("webhooks")
		}},
	} {
		for _, other := range []string{"a-server", "z-server"} {
			w := healthy(t)
			if tc.reason == errDark.Error() {
				w.second(other)
			}
			tc.do(w)
			r := only(w, tc.id)
			if r.Status != tc.want || !strings.Contains(r.Reason, tc.reason) {
				t.Errorf("%s, %s: %+v, want %s because of %q", name, other, r, tc.want, tc.reason)
			}
			if tc.finding == "" != (len(r.Findings) == 0) || tc.finding != "" && !strings.Contains(r.Findings[0].Message, tc.finding) {
				t.Errorf("%s, %s: %+v, want the finding %q", name, other, r.Findings, tc.finding)
			}
		}
	}
}

// TestSuppressPartlyUnread proves that a suppressed finding does not hide that something could not be read, and that a suppressed check does.
func TestSuppressPartlyUnread(t *testing.T) {
	for pattern, want := range map[string]rules.Status{"FL-KON-005=*": rules.Unknown, "FL-KON-005": rules.Suppressed, "FL-KON-011": rules.Failed} {
		w := healthy(t)
		w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricBackends, 0))
		w.second("z-server")
		r := rules.Judge(w.Snapshot, rules.Options{Only: []string{"FL-KON-005"}, Suppress: []string{pattern}})
		if got := r.Checks[0]; got.Status != want || len(got.Findings) != 1 || r.Success(rules.Unknown) != (want == rules.Suppressed) {
			t.Errorf("%s: %+v, want %s", pattern, got, want)
		}
	}
}

// forbiddenBy makes the error of client-go for code 403: with the API server's Status, or with a kubelet's text.
func forbiddenBy(apiServer bool) error {
	nodes := schema.GroupResource{Resource: "nodes"}
	if apiServer {
		return apierrors.NewForbidden(nodes, "a", errors.New(`User "viewer" cannot get resource "nodes/proxy" in API group "" at the cluster scope`))
	}
	return apierrors.NewGenericServerResponse(http.StatusForbidden, "get", nodes, "a", "Forbidden (user=kube-apiserver-kubelet-client, verb=get, resource=nodes, subresource(s)=[proxy])", 0, true)
}

// TestKubeletsRefused proves that a user without the right to call kubelets learns that it is unknown whether they answer, that a kubelet that refuses
// kube-apiserver is a fault, and that neither the one nor loopback addresses hide the fault of another node.
func TestKubeletsRefused(t *testing.T) {
	loopback := errors.New("address 127.0.0.1 not allowed")
	for name, tc := range map[string]struct {
		kubelets map[string]error
		want     rules.Status
		findings int
	}{
		"no right":             {map[string]error{"a": forbiddenBy(true), "b": forbiddenBy(true)}, rules.Unknown, 0},
		"kubelet refuses":      {map[string]error{"a": forbiddenBy(false), "b": nil}, rules.Failed, 1},
		"loopback":             {map[string]error{"a": loopback, "b": loopback}, rules.Skipped, 0},
		"loopback and a fault": {map[string]error{"a": loopback, "b": errDark}, rules.Failed, 1},
		"no right for one":     {map[string]error{"a": forbiddenBy(true), "b": errDark}, rules.Failed, 1},
	} {
		w := healthy(t)
		w.Kubelets = tc.kubelets
		r := only(w, "FL-KON-006")
		if r.Status != tc.want || len(r.Findings) != tc.findings {
			t.Errorf("%s: %+v, want %s and %d findings", name, r, tc.want, tc.findings)
		}
		if name == "no right" && (!strings.Contains(r.Reason, "get nodes/proxy") || !strings.Contains(r.Reason, "and 1 more")) {
			t.Errorf("%s: %s", name, r.Reason)
		}
	}
	if !apierrors.HasStatusCause(forbiddenBy(false), metav1.CauseTypeUnexpectedServerResponse) {
		t.Error("client-go does not mark answers without Status any more")
	}
}

// TestKubeletsWithoutServers proves that kubelets are judged where the servers' metrics cannot be read, and where no server is visible: the API server
// alone decides. A server without agents still explains them.
func TestKubeletsWithoutServers(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(w *world)
		want rules.Status
	}{
		"metrics unknown": {func(w *world) {
			w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Fact[observe.Metrics]{Err: errDark}
		}, rules.Failed},
		"servers outside": {func(w *world) {
			w.without(check.RoleServer)
			w.APIServers.Err, w.ServerMetrics, w.Shown = check.Skip("unknown"), nil, nil
		}, rules.Failed},
		"no agents": {func(w *world) {
			w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricBackends, 0))
		}, rules.Skipped},
		"servers not ready": {func(w *world) { w.find(check.RoleServer).Ready = false }, rules.Skipped},
		"agents not ready":  {func(w *world) { w.all(check.RoleAgent, func(p *observe.Program) { p.Ready = false }) }, rules.Skipped},
	} {
		w := healthy(t)
		w.Kubelets = map[string]error{"a": errDark}
		tc.do(w)
		if r := only(w, "FL-KON-006"); r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

// TestFixForProcess proves that the fix for a process that is started again and again is a command that there is, with its log, and not kubectl's.
func TestFixForProcess(t *testing.T) {
	w := healthy(t)
	agent := w.find(check.RoleAgent)
	agent.Restarts = 9
	if fix := only(w, "FL-KON-012").Findings[0].Fix; !strings.HasPrefix(fix, "kubectl") || !strings.HasSuffix(fix, " --previous") {
		t.Errorf("a Pod's: %s", fix)
	}
	agent.Pod, agent.LogFile = nil, "/logs/agent.log"
	if fix := only(w, "FL-KON-012").Findings[0].Fix; fix != "tail -n 20 /logs/agent.log" {
		t.Errorf("a process's: %s", fix)
	}
}

// TestFixNamesTheContainer proves that the command for the log of a Pod with several containers names that of the program.
func TestFixNamesTheContainer(t *testing.T) {
	w := healthy(t)
	server := w.find(check.RoleServer)
	server.Restarts, server.Container = 9, server.Pod.Spec.Containers[0]
	server.Pod.Spec.Containers = append([]corev1.Container{{Name: "kube-apiserver"}}, server.Pod.Spec.Containers...)
	if fix, want := only(w, "FL-KON-012").Findings[0].Fix, " -c "+server.Container.Name+" "; !strings.Contains(fix, want) {
		t.Errorf("%q lacks %q", fix, want)
	}
}
