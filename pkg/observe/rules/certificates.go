// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

const (
	groupCertificates = "Certificates"
	groupHost         = "This control plane node"
	egressFile        = "FL-HST-001"
)

func certificateRules() []Rule {
	needs := []string{reach}
	return []Rule{
		{ID: "FL-CRT-001", Group: groupCertificates, Phase: Always, Title: "The API server's certificate does not expire soon", run: servingCert,
			Why: "After the expiry no client connects, among them kubelets, agents and schedulers. Soon is " + whenSoon + ".",
			Fix: "kubeadm certs renew apiserver   # on every control plane node, then restart kube-apiserver"},
		{ID: "FL-CRT-002", Group: groupCertificates, Phase: Always, Title: "The kubeconfig's client certificate does not expire soon", run: clientCert,
			Why: "After the expiry the API server refuses this kubeconfig. Soon is " + whenSoon + ".",
			Fix: "kubeadm certs renew admin.conf"},
		{ID: "FL-CRT-003", Group: groupCertificates, Phase: Always, Needs: needs, Title: "The cluster's CAs do not expire soon", run: authorities("client-ca-file"),
			Why: "After a CA's expiry every certificate that it signed is worthless. Soon is " + whenSoonCA + ".",
			Fix: "Rotate the CA: kubernetes.io/docs/tasks/tls/manual-rotation-of-ca-certificates"},
		{ID: "FL-CRT-004", Group: groupCertificates, Phase: Always, Needs: needs, Title: "The front proxy's CA does not expire soon", run: authorities("requestheader-client-ca-file"),
			Why: "After its expiry every aggregated API refuses kube-apiserver. Soon is " + whenSoonCA + ".",
			Fix: "Rotate the CA: add a new one to the file of kube-apiserver's --requestheader-client-ca-file on every control plane node, and restart kube-apiservers; " +
				"sign front-proxy-client with the new one on every node; then remove the old one."},
		{ID: "FL-CRT-005", Group: groupCertificates, Phase: After, Needs: []string{reach, complete}, NotIf: []string{serversRun}, Title: "The certificates that agents see do not expire soon", run: shownCerts,
			Why: "After the expiry no agent connects. Soon is " + whenSoon + ".",
			Fix: "fairlead certs renew   # on that control plane node; kubeadm certs renew apiserver   # if the server shares that certificate"},
		{ID: "FL-CRT-006", Group: groupCertificates, Phase: Always, Needs: needs, Title: "CA bundles that the API server trusts do not expire soon", run: bundles,
			Why: "After the expiry the API server refuses the backend's certificate, and calls fail. Soon is " + whenSoon + ".",
			Fix: "Renew the CA bundle, for example by restarting the operator that manages it."},
		{ID: "FL-CRT-007", Group: groupCertificates, Phase: Always, Needs: needs, Title: "No kubelet waits for its serving certificate", run: pendingCSRs,
			Why: "kube-apiserver refuses a kubelet without a certificate of the cluster's CA as soon as it verifies kubelets.",
			Fix: "kubectl certificate approve <name>   # after you have compared the node's addresses"},
	}
}

const (
	soon   = 30 * 24 * time.Hour
	soonCA = 90 * 24 * time.Hour
	// lastPart is which part of a lifetime is its end: certificates with a short one are renewed before.
	lastPart   = 4
	whenSoon   = "30 days" + orShorter
	whenSoonCA = "90 days" + orShorter
	orShorter  = ", or the last quarter of a shorter lifetime"
	// byHand is the lifetime of kubeadm's certificates. What has a much shorter one is renewed by what issued it.
	byHand = lastPart * soon
)

// expiry judges one certificate.
func expiry(s *observe.Snapshot, object string, c *x509.Certificate, before time.Duration) *Finding {
	f := expires(s, object, c, before)
	if f != nil && f.Fix == "" && c.NotAfter.Sub(c.NotBefore) < byHand {
		f.Fix = "Find out why it was not renewed: its lifetime is " + duration.HumanDuration(c.NotAfter.Sub(c.NotBefore)) + ", so that what issued it should renew it."
	}
	return f
}

// expires judges one certificate of which it is known what renews it.
func expires(s *observe.Snapshot, object string, c *x509.Certificate, before time.Duration) *Finding {
	left := c.NotAfter.Sub(s.Taken)
	before = min(before, c.NotAfter.Sub(c.NotBefore)/lastPart)
	date := c.NotAfter.UTC().Format(time.DateOnly)
	switch {
	case left <= 0:
		return &Finding{Object: object, Message: fmt.Sprintf("certificate %q expired on %s", c.Subject.CommonName, date)}
	case s.Taken.Before(c.NotBefore):
		return &Finding{Object: object, Message: fmt.Sprintf("certificate %q is not valid before %s", c.Subject.CommonName, c.NotBefore.UTC().Format(time.DateTime)), Fix: "timedatectl set-ntp true"}
	case left < before:
		return &Finding{Object: object, Message: fmt.Sprintf("certificate %q expires in %s, on %s", c.Subject.CommonName, inDays(left), date), Warning: true}
	}
	return nil
}

func inDays(left time.Duration) string {
	const day = 24 * time.Hour
	if left < 2*day {
		return duration.HumanDuration(left)
	}
	return fmt.Sprintf("%d days", int(left/day))
}

func servingCert(s *observe.Snapshot) ([]Finding, error) {
	c := s.Reach.Value
	switch {
	case len(c.Certificates) == 0 && s.Reach.Err != nil:
		return nil, unmet(reach, Failed)
	case len(c.Certificates) == 0:
		return nil, check.Skip("the API server does not show a certificate: the kubeconfig has an http URL")
	}
	if f := expiry(s, s.Host, c.Certificates[0], soon); f != nil {
		return []Finding{*f}, nil
	}
	return nil, nil
}

func clientCert(s *observe.Snapshot) ([]Finding, error) {
	c, err := s.ClientCert.Get()
	if err != nil {
		return nil, err
	}
	if f := expiry(s, "kubeconfig, context "+s.Context, c, soon); f != nil {
		return []Finding{*f}, nil
	}
	return nil, nil
}

func authorities(key string) func(*observe.Snapshot) ([]Finding, error) {
	return func(s *observe.Snapshot) ([]Finding, error) {
		data, err := s.Authentication.Get()
		if err != nil {
			return nil, err
		}
		if data[key] == "" {
			return nil, check.Skip("kube-apiserver has no %s", key)
		}
		certs, err := pki.ParseCerts([]byte(data[key]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		return stillGood(s, "kube-apiserver --"+key, certs, soonCA), nil
	}
}

// stillGood judges a bundle of CAs. An old one next to its successor is fine: only the last to expire counts.
func stillGood(s *observe.Snapshot, object string, certs []*x509.Certificate, before time.Duration) []Finding {
	last := slices.MaxFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	if f := expiry(s, object, last, before); f != nil {
		return []Finding{*f}
	}
	return nil
}

func shownCerts(s *observe.Snapshot) ([]Finding, error) {
	return shownLeafs(s, func(server string, chain []*x509.Certificate, _ []string) *Finding {
		return expiry(s, server, chain[0], soon)
	})
}

func bundles(s *observe.Snapshot) ([]Finding, error) {
	var out []Finding
	judge := func(object string, pem []byte) {
		if len(pem) == 0 {
			return
		}
		certs, err := pki.ParseCerts(pem)
		if err != nil || len(certs) == 0 {
			out = append(out, Finding{Object: object, Message: fmt.Sprintf("its caBundle cannot be read: %v", err)})
			return
		}
		out = append(out, stillGood(s, object, certs, soon)...)
	}
	for _, w := range s.Webhooks() {
		judge(w.Owner+", webhook "+w.Name, w.CABundle)
	}
	for _, a := range s.APIServices.Value {
		judge("APIService "+a.Name, a.CABundle)
	}
	for _, d := range s.CRDs.Value {
		judge("CustomResourceDefinition "+d.Name, d.CABundle)
	}
	return out, firstError(s.Mutating.Err, s.Validating.Err, s.APIServices.Err, s.CRDs.Err)
}

func pendingCSRs(s *observe.Snapshot) ([]Finding, error) {
	all, err := s.CSRs.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, c := range all {
		if c.Spec.SignerName == certificatesv1.KubeletServingSignerName && !decided(c) {
			out = append(out, Finding{Object: "CertificateSigningRequest " + c.Name, Message: c.Spec.Username + " waits for its serving certificate", Warning: true,
				Fix: "kubectl certificate approve " + c.Name})
		}
	}
	return out, nil
}

func decided(c certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(cond certificatesv1.CertificateSigningRequestCondition) bool {
		return cond.Status == corev1.ConditionTrue
	})
}

func hostRules() []Rule {
	return []Rule{
		{ID: egressFile, Group: groupHost, Phase: After, Title: "The egress selector file can be read and selects the tunnel", run: egressReadable,
			Why: "kube-apiserver does not start with a file that it cannot read, and without selection cluster it dials nodes directly.",
			Fix: "fairlead controlplane install -f bundle.yaml"},
		{ID: "FL-HST-002", Group: groupHost, Phase: After, Needs: []string{egressFile}, Title: "The egress selector file leads to the server", run: egressLeads,
			Why: "With another socket or port, every call of kube-apiserver to a node fails.",
			Fix: "fairlead controlplane install -f bundle.yaml"},
		{ID: "FL-HST-003", Group: groupHost, Phase: After, Needs: []string{egressFile}, NotIf: []string{serversRun}, Title: "The socket between kube-apiserver and server exists", run: socketExists,
			Why: "kube-apiserver reaches no node until the server listens.",
			Fix: "ls -l /etc/kubernetes/konnectivity-server; crictl ps --name konnectivity-server"},
		{ID: "FL-HST-004", Group: groupHost, Phase: After, Needs: []string{egressFile, "FL-HST-003"}, Title: "Only root can use the socket", run: socketClosed,
			Why: "A user who may write to the socket can connect to every node, Pod and Service.",
			Fix: "chmod 0700 /etc/kubernetes/konnectivity-server"},
		{ID: "FL-HST-005", Group: groupHost, Phase: After, Title: "The certificates of the tunnel on this node are good", run: hostCerts,
			Why: "An expired certificate, or one of another CA, stops the tunnel when its program restarts at the latest.",
			Fix: "fairlead certs renew; kubeadm certs renew apiserver   # if the server shares that certificate"},
		{ID: "FL-HST-006", Group: groupHost, Phase: Always, Title: "The certificates of this node's control plane, kubelet and kubeconfigs are valid long enough", run: ownCerts,
			Why: "With an expired front proxy's certificate aggregated APIs refuse kube-apiserver; with one of another of these, kubelets, etcd or clients do. With one in a kubeconfig, kube-apiserver refuses its program.",
			Fix: "kubeadm certs renew all   # then restart the control plane's static Pods"},
	}
}

func egressReadable(s *observe.Snapshot) ([]Finding, error) {
	host, err := s.Node.Get()
	if err != nil {
		return nil, err
	}
	e, err := host.Egress.Get()
	switch {
	case check.IsSkip(err):
		return nil, err
	case err != nil:
		return one(host.EgressFile, err.Error(), ""), nil
	case !e.Selected || e.Protocol == "Direct":
		if _, _, err := tunnel(s); check.IsSkip(err) {
			return nil, err // and a file of another purpose
		}
	}
	switch {
	case !e.Selected:
		return one(host.EgressFile, "it has no selection with name: "+apiserver.Selection, ""), nil
	case e.Protocol == "Direct":
		return one(host.EgressFile, "its selection "+apiserver.Selection+" has proxyProtocol: Direct", ""), nil
	}
	return nil, nil
}

func egressLeads(s *observe.Snapshot) ([]Finding, error) {
	host, err := s.Node.Get()
	if err != nil {
		return nil, err
	}
	e, err := host.Egress.Get()
	if err != nil {
		return nil, err
	}
	programs, err := s.Programs.Get()
	if err != nil {
		return nil, err
	}
	servers := observe.Of(programs, check.RoleServer)
	if len(servers) == 0 {
		return nil, check.Skip("no server is visible")
	}
	var problems []string
	for _, p := range servers {
		problem := leadsTo(e, p)
		if problem == "" {
			return nil, nil
		}
		problems = append(problems, problem)
	}
	return one(host.EgressFile, problems[0], ""), nil
}

// leadsTo compares the file with one server's flags.
func leadsTo(e observe.Egress, p observe.Program) string {
	if mode := p.Flag("mode", "grpc"); !speaks(map[string]float64{e.Protocol: 1}, mode) {
		return fmt.Sprintf("it has proxyProtocol: %s, and %s has --mode=%s", e.Protocol, p.Name, mode)
	}
	if uds := p.Flag("uds-name", ""); (e.UDS == "") != (uds == "") || uds != "" && cmp.Or(e.Socket, e.UDS) != observe.OnHost(p, uds) {
		return fmt.Sprintf("it has udsName: %q, and %s has --uds-name=%s", e.UDS, p.Name, uds)
	}
	if port := p.Flag("server-port", "8090"); e.URL != "" && !strings.HasSuffix(strings.TrimSuffix(e.URL, "/"), ":"+port) {
		return fmt.Sprintf("it has url: %s, and %s has --server-port=%s", e.URL, p.Name, port)
	}
	return ""
}

func socketExists(s *observe.Snapshot) ([]Finding, error) {
	host, err := s.Node.Get()
	if err != nil {
		return nil, err
	}
	socket, err := host.Socket.Get()
	switch {
	case check.IsSkip(err):
		return nil, err
	case err != nil:
		return one(cmp.Or(host.Egress.Value.Socket, host.Egress.Value.UDS), err.Error(), ""), nil
	case !socket.IsSocket:
		return one(socket.Path, "it is not a socket", ""), nil
	}
	return nil, nil
}

func socketClosed(s *observe.Snapshot) ([]Finding, error) {
	host, err := s.Node.Get()
	if err != nil {
		return nil, err
	}
	socket, err := host.Socket.Get()
	if err != nil {
		return nil, err
	}
	dir := socket.Path[:max(strings.LastIndex(socket.Path, "/"), 0)]
	byAll := socket.Mode&0o002 != 0 && socket.Parent&0o001 != 0
	byGroup := socket.Mode&0o020 != 0 && socket.Group != 0 && socket.Parent&0o011 != 0
	if byAll || byGroup {
		return one(socket.Path, fmt.Sprintf("it has mode %04o and its directory %04o, so that other users of this node can connect to it", socket.Mode, socket.Parent), "chmod 0700 "+dir), nil
	}
	if host.Local || socket.Owner == 0 {
		return nil, nil
	}
	users, err := serverUsers(s)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(users, int64(socket.Owner)) {
		return one(socket.Path, fmt.Sprintf("it belongs to user %d, who can connect to it, and no konnectivity-server runs as that user", socket.Owner),
			"chown root "+socket.Path+"; ls -ln "+dir), nil
	}
	return nil, nil
}

// serverUsers are the users that the Pods of servers set.
func serverUsers(s *observe.Snapshot) ([]int64, error) {
	if err := s.Programs.Err; err != nil && s.Reach.Err != nil {
		return nil, because(check.Skip("the users of konnectivity-servers are unknown: %v", err), reach)
	} else if err != nil {
		return nil, fmt.Errorf("the users of konnectivity-servers: %w", err)
	}
	var out []int64
	for _, p := range observe.Of(s.Programs.Value, check.RoleServer) {
		if p.Pod == nil {
			continue
		}
		if c := p.Pod.Spec.SecurityContext; c != nil && c.RunAsUser != nil {
			out = append(out, *c.RunAsUser)
		}
		for i := range p.Pod.Spec.Containers {
			if c := p.Pod.Spec.Containers[i].SecurityContext; c != nil && c.RunAsUser != nil {
				out = append(out, *c.RunAsUser)
			}
		}
	}
	if len(out) == 0 {
		return nil, check.Skip("no Pod of a konnectivity-server sets runAsUser, so its image decides which user it runs as")
	}
	return out, nil
}

func ownCerts(s *observe.Snapshot) ([]Finding, error) {
	host, err := s.Node.Get()
	if err != nil {
		return nil, err
	}
	if host.Local {
		return nil, check.Skip("a local cluster renews its certificates with every \"fairlead up\"")
	}
	var out []Finding
	for _, c := range host.Own {
		leaf, err := c.Leaf.Get()
		if err != nil {
			out = append(out, Finding{Object: c.Path, Message: c.Use + ": " + err.Error(), Fix: c.Renewal})
			continue
		}
		before := soon
		if c.Rotated { // the signer may issue it for less than 30 days
			before = min(soon, leaf.NotAfter.Sub(leaf.NotBefore)/20)
		}
		if f := expires(s, c.Path, leaf, before); f != nil {
			f.Message = c.Use + ": " + f.Message
			f.Fix = cmp.Or(f.Fix, c.Renewal)
			out = append(out, *f)
		}
	}
	return out, nil
}

func hostCerts(s *observe.Snapshot) ([]Finding, error) {
	host, err := s.Node.Get()
	if err != nil {
		return nil, err
	}
	certs, err := host.Certificates.Get()
	if err != nil {
		return nil, err
	}
	// A bundle may have the image of another project.
	none := !slices.ContainsFunc(certs, func(c controlplane.Certificate) bool { return c.State != controlplane.CertMissing })
	if none && s.Programs.Err == nil && !slices.ContainsFunc(observe.Of(s.Programs.Value, check.RoleServer), ours) {
		return nil, check.Skip("no konnectivity-server of Fairlead is in this cluster")
	}
	var out []Finding
	for _, c := range certs {
		if c.State == controlplane.CertGood {
			continue
		}
		f := Finding{Object: c.Path, Message: c.Use + ": " + c.State, Warning: c.State == controlplane.CertExpiring}
		if c.Problem != "" {
			f.Message += ": " + c.Problem
		}
		if c.Renewal != "" && c.Renewal != "by hand" {
			f.Fix = c.Renewal
		}
		out = append(out, f)
	}
	return out, nil
}
