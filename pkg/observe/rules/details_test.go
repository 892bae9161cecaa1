// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// only returns the result of one check.
func only(w *world, id string) rules.Result {
	all := rules.Judge(w.Snapshot, rules.Options{Only: []string{id}}).Checks
	return all[slices.IndexFunc(all, func(r rules.Result) bool { return r.ID == id })]
}

// TestSince proves that findings from counters say when the count began, since it may show what is over.
func TestSince(t *testing.T) {
	for id, broken := range map[string]func(w *world) observe.Metrics{
		"FL-KON-010": func(w *world) observe.Metrics {
			maps.Copy(w.APIServerMetrics.Value, metric(observe.MetricEgressFailed, 50))
			return w.APIServerMetrics.Value
		},
		"FL-KON-011": func(w *world) observe.Metrics {
			m := w.ServerMetrics[w.find(check.RoleServer).Name].Value
			maps.Copy(m, metric(observe.MetricTurnedAway, 4))
			return m
		},
	} {
		w := healthy(t)
		maps.Copy(broken(w), metric(observe.MetricStart, float64(now.Add(-12*24*time.Hour).Unix())))
		if r := only(w, id); len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Message, "since it started 12d ago") {
			t.Errorf("%+v", r)
		}
	}
}

// TestEgressInTwoWords proves that the cause of an APIService that is not available names the tunnel whatever the form of kube-apiserver's flag.
func TestEgressInTwoWords(t *testing.T) {
	for _, args := range [][]string{{"--egress-selector-config-file=/x"}, {"--egress-selector-config-file", "/x"}} {
		w := healthy(t)
		w.APIServers.Value = map[string][]string{"cp": args}
		w.APIServerMetrics.Value = nil
		a := &w.APIServices.Value[0]
		a.Available, a.Reason, a.Message = false, "FailedDiscoveryCheck", "failing or missing response: context deadline exceeded"
		if r := only(w, "FL-EXT-002"); !strings.Contains(r.Findings[0].Message, "it connects through the tunnel") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestAgentsCA proves that the server's certificate is compared with the cluster's CA only if agents trust that one: at its usual path, or from its
// ConfigMap at another. Agents with a CA of their own are no fault.
func TestAgentsCA(t *testing.T) {
	mount := func(v corev1.VolumeSource) func(p *observe.Program) {
		return func(p *observe.Program) {
			setFlag(p, "--ca-cert=/certs/ca.crt")
			p.Pod.Spec.Volumes = append(p.Pod.Spec.Volumes, corev1.Volume{Name: "certs", VolumeSource: v})
			c := &p.Pod.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "certs", MountPath: "/certs/"})
		}
	}
	ofCluster := corev1.LocalObjectReference{Name: "kube-root-ca.crt"}
	for name, tc := range map[string]struct {
		agent func(p *observe.Program)
		want  rules.Status
	}{
		"ours":           {func(*observe.Program) {}, rules.Failed},
		"ServiceAccount": {func(p *observe.Program) { setFlag(p, "--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt") }, rules.Failed},
		"its ConfigMap":  {mount(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ofCluster}}), rules.Failed},
		"own Secret":     {mount(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "tunnel-ca"}}), rules.Skipped},
		"own ConfigMap":  {mount(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tunnel-ca"}}}), rules.Skipped},
		"its image's":    {func(p *observe.Program) { setFlag(p, "--ca-cert=") }, rules.Skipped},
	} {
		w := healthy(t)
		w.Shown[w.find(check.RoleServer).Name] = observe.Known([]*x509.Certificate{w.fp.leaf(t, serverHost, now.Add(year))})
		w.all(check.RoleAgent, tc.agent)
		if r := only(w, "FL-KON-022"); r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

// TestAgentsByStrategy proves that agents are counted by the strategy that has each of them once, and not by the old gauge, which upstream's server
// sets to the number of the strategy that changed last.
func TestAgentsByStrategy(t *testing.T) {
	for name, tc := range map[string]struct {
		by   map[string]float64
		old  float64
		want rules.Status
	}{
		"all":                  {map[string]float64{"default": 2, "defaultRoute": 1}, 1, rules.OK},
		"one is missing":       {map[string]float64{"default": 1, "destHost": 4}, 4, rules.Warning},
		"without default":      {map[string]float64{"destHost": 2, "defaultRoute": 1}, 1, rules.OK},
		"a server of long ago": {nil, 2, rules.OK},
	} {
		w := healthy(t)
		m := metric(observe.MetricBackends, tc.old)
		for strategy, n := range tc.by {
			one := metric(observe.MetricByStrategy, n, "proxy_strategy", strategy)[observe.MetricByStrategy]
			if m[observe.MetricByStrategy] == nil {
				m[observe.MetricByStrategy] = one
			} else {
				m[observe.MetricByStrategy].Metric = append(m[observe.MetricByStrategy].Metric, one.Metric...)
			}
		}
		w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(m)
		if r := only(w, "FL-KON-005"); r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

// TestMountedSocket proves that the socket of kube-apiserver and that of the server are compared on the node, where they are one file, and not by the
// paths in their containers.
func TestMountedSocket(t *testing.T) {
	for socket, want := range map[string]rules.Status{"/run/tunnel/t.socket": rules.OK, "/run/other/t.socket": rules.Failed} {
		w := healthy(t)
		w.Node.Value.Egress.Value.UDS, w.Node.Value.Egress.Value.Socket = "/in/apiserver/t.socket", socket
		server := w.find(check.RoleServer)
		setFlag(server, "--uds-name=/in/server/t.socket")
		server.Pod = server.Pod.DeepCopy()
		server.Pod.Spec.Volumes = append(server.Pod.Spec.Volumes, corev1.Volume{Name: "socket", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/tunnel"}}})
		c := &server.Pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "socket", MountPath: "/in/server"})
		if r := only(w, "FL-HST-002"); r.Status != want {
			t.Errorf("%s: %+v, want %s", socket, r, want)
		}
	}
}

// TestCanI proves that the command for each right has the subresource as a flag: after a slash, kubectl takes it for an object's name, and says yes to
// a user who may get the objects alone. TestCheckRights in e2e/suite runs the commands.
func TestCanI(t *testing.T) {
	w := healthy(t)
	w.Denied = observe.Known(observe.ReadRights)
	findings := only(w, "FL-API-009").Findings
	if len(findings) != len(observe.ReadRights) {
		t.Fatalf("%d findings for %d rights", len(findings), len(observe.ReadRights))
	}
	for i, right := range observe.ReadRights {
		want := "kubectl auth can-i " + right
		if object, sub, ok := strings.Cut(right, "/"); ok {
			want = "kubectl auth can-i " + object + " --subresource=" + sub
		}
		if findings[i].Fix != want+" --all-namespaces" {
			t.Errorf("%s: %s", right, findings[i].Fix)
		}
	}
}

// TestSocketOwner proves that a socket of another user is a fault, unless a server runs as that user, or the cluster is a local one, which its user
// owns.
func TestSocketOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(w *world)
		want rules.Status
	}{
		"root":    {func(*world) {}, rules.OK},
		"another": {func(w *world) { w.Node.Value.Socket.Value.Owner = 1000 }, rules.Failed},
		"server's": {func(w *world) {
			w.Node.Value.Socket.Value.Owner = 65532
			w.find(check.RoleServer).Pod.Spec.Containers[0].SecurityContext.RunAsUser = ptr.To(int64(65532))
		}, rules.OK},
		"programs unknown": {func(w *world) {
			w.Node.Value.Socket.Value.Owner = 1000
			w.Programs.Value, w.Programs.Err = nil, errors.New("pods is forbidden")
		}, rules.Unknown},
		"no API server": {func(w *world) {
			w.Node.Value.Socket.Value.Owner = 1000
			w.Reach.Err = errors.New("connection refused")
			w.Programs.Value, w.Programs.Err = nil, errors.New("the API server does not answer")
		}, rules.Skipped},
		"the image's user": {func(w *world) {
			w.Node.Value.Socket.Value.Owner = 1000
			pod := w.find(check.RoleServer).Pod
			pod.Spec.SecurityContext.RunAsUser = nil
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].SecurityContext.RunAsUser = nil
			}
		}, rules.Skipped},
		"group root's": {func(w *world) { w.Node.Value.Socket.Value.Mode, w.Node.Value.Socket.Value.Parent = 0o770, 0o755 }, rules.OK},
		"local":        {func(w *world) { w.Node.Value.Socket.Value.Owner, w.Node.Value.Local = 1000, true }, rules.OK},
	} {
		w := healthy(t)
		tc.do(w)
		if r := only(w, "FL-HST-004"); r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

// TestRotatedCertificate proves that a certificate that kubelet rotates is not reported for a short lifetime, but for a rotation that did not come.
func TestRotatedCertificate(t *testing.T) {
	for left, want := range map[time.Duration]rules.Status{7 * 24 * time.Hour: rules.OK, time.Hour: rules.Warning, -time.Hour: rules.Failed} {
		w := healthy(t)
		leaf := *w.Node.Value.Own[0].Leaf.Value
		leaf.NotAfter = now.Add(left)
		leaf.NotBefore = leaf.NotAfter.Add(-10 * 24 * time.Hour)
		w.Node.Value.Own[0].Leaf.Value, w.Node.Value.Own[0].Rotated = &leaf, true
		if r := only(w, "FL-HST-006"); r.Status != want {
			t.Errorf("%s left: %+v, want %s", left, r, want)
		}
	}
}

// TestShortLifetimes proves that certificates that are renewed often are not reported before the last quarter of their lifetime, and that then the fix
// is not that of kubeadm's certificates.
func TestShortLifetimes(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		lifetime, left time.Duration
		want           rules.Status
	}{
		{30 * day, 20 * day, rules.OK}, {30 * day, 7 * day, rules.Warning}, {12 * time.Hour, 4 * time.Hour, rules.OK}, {12 * time.Hour, 2 * time.Hour, rules.Warning},
		{12 * time.Hour, -time.Hour, rules.Failed}, {365 * day, 31 * day, rules.OK}, {365 * day, 29 * day, rules.Warning},
	} {
		for id, put := range map[string]func(w *world, leaf *x509.Certificate){
			"FL-CRT-001": func(w *world, leaf *x509.Certificate) { w.Reach.Value.Certificates[0] = leaf },
			"FL-CRT-002": func(w *world, leaf *x509.Certificate) { w.ClientCert.Value = leaf },
			"FL-CRT-005": func(w *world, leaf *x509.Certificate) {
				w.Shown[w.find(check.RoleServer).Name] = observe.Known([]*x509.Certificate{leaf})
			},
			"FL-CRT-006": func(w *world, leaf *x509.Certificate) { w.CRDs.Value[0].CABundle = []byte(pemOf(leaf)) },
			"FL-HST-006": func(w *world, leaf *x509.Certificate) {
				w.Node.Value.Own[0].Leaf.Value, w.Node.Value.Own[0].Renewal = leaf, "systemctl restart x"
			},
		} {
			w := healthy(t)
			put(w, w.ca.leafOf(t, serverHost, now.Add(tc.left), tc.lifetime))
			r := only(w, id)
			if r.Status != tc.want {
				t.Errorf("%s, %s of %s left: %+v, want %s", id, tc.left, tc.lifetime, r, tc.want)
			}
			if len(r.Findings) > 0 && tc.lifetime < 60*day && strings.Contains(r.Findings[0].Fix, "kubeadm") {
				t.Errorf("%s of %s: fix %s", id, tc.lifetime, r.Findings[0].Fix)
			}
		}
	}
	w := healthy(t)
	w.Authentication.Value["requestheader-client-ca-file"] = pemOf(w.fp.leafOf(t, "front-proxy-ca", now.Add(20*day), 30*day))
	if r := only(w, "FL-CRT-004"); r.Status != rules.OK {
		t.Errorf("a CA of 30 days: %+v", r)
	}
}

// TestFrontProxyCA proves that the fix for the front proxy's CA replaces it without a time in which no aggregated API works: kubeadm keeps an old
// one that is there, and one that has moved away has signed the certificate that is in use.
func TestFrontProxyCA(t *testing.T) {
	w := healthy(t)
	w.Authentication.Value["requestheader-client-ca-file"] = pemOf(newAuthority(t, "old", now.Add(20*24*time.Hour)).cert)
	fix := only(w, "FL-CRT-004").Findings[0].Fix
	add, sign, remove := strings.Index(fix, "add"), strings.Index(fix, "front-proxy-client"), strings.Index(fix, "remove")
	if strings.Contains(fix, "kubeadm init") || add < 0 || sign < add || remove < sign {
		t.Errorf("got %s", fix)
	}
}

// TestSlowSources proves that a Lease, a Pod and a node's clock are judged by the time at which they were read, and not by that of the slowest source:
// what was in order then is no finding, and what was not is one.
func TestSlowSources(t *testing.T) {
	for _, tc := range []struct {
		id   string
		want rules.Status
		do   func(w *world, read time.Time)
	}{
		{"FL-SCH-002", rules.OK, func(w *world, read time.Time) { w.Leases.Value[0].Spec.RenewTime.Time = read.Add(-12 * time.Second) }},
		{"FL-SCH-002", rules.Failed, func(w *world, read time.Time) { w.Leases.Value[0].Spec.RenewTime.Time = read.Add(-21 * time.Second) }},
		{"FL-API-010", rules.OK, func(w *world, read time.Time) {
			for i := range w.NodeLeases.Value {
				w.NodeLeases.Value[i].Spec.RenewTime.Time = read.Add(-45 * time.Second)
			}
		}},
		{"FL-API-010", rules.Warning, func(w *world, read time.Time) {
			w.NodeLeases.Value[0].Spec.RenewTime.Time = read.Add(10 * time.Second)
		}},
		{"FL-SCH-010", rules.OK, func(w *world, read time.Time) {
			w.Pending.Value = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: read.Add(-110 * time.Second)}}, Spec: corev1.PodSpec{SchedulerName: "none"}}}
		}},
	} {
		w := healthy(t)
		read := w.Taken.Add(-20 * time.Second)
		w.Leases.Read, w.NodeLeases.Read, w.Pending.Read = read, read, read
		for i := range w.NodeLeases.Value {
			w.NodeLeases.Value[i].Spec.RenewTime.Time = read
		}
		tc.do(w, read)
		if r := only(w, tc.id); r.Status != tc.want {
			t.Errorf("%+v, want %s", r, tc.want)
		}
	}
}
