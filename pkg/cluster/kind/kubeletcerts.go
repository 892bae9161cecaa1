// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/apis/certificates"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Kubelets request their serving certificates from the cluster's CA (serverTLSBootstrap), so
// that kube-apiserver can verify them. kube-controller-manager signs such requests but
// approves none: it cannot know which names and addresses belong to a node. The container
// runtime knows, so this package approves the requests that match it, and no others.

// Properties that the requests of all kubelets share.
const (
	nodeUserPrefix = "system:node:"
	nodeGroup      = "system:nodes"
)

// servingRequest returns why the request must not be approved, or nil. addresses holds the
// addresses of the cluster's node containers, by node name.
func servingRequest(csr *certificatesv1.CertificateSigningRequest, addresses map[string][]netip.Addr) error {
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return fmt.Errorf("its signer is %q, not %s", csr.Spec.SignerName, certificatesv1.KubeletServingSignerName)
	}
	node, isNode := strings.CutPrefix(csr.Spec.Username, nodeUserPrefix)
	own, planned := addresses[node]
	if !isNode || !planned {
		return fmt.Errorf("%q, who made it, is no node of this cluster", csr.Spec.Username)
	}
	if !slices.Contains(csr.Spec.Groups, nodeGroup) {
		return fmt.Errorf("%q, who made it, is not in the group %s", csr.Spec.Username, nodeGroup)
	}
	request, err := certificates.ParseCSR(csr.Spec.Request)
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return fmt.Errorf("its signature is wrong: %w", err)
	}
	usages := sets.NewString()
	for _, u := range csr.Spec.Usages {
		usages.Insert(string(u))
	}
	if err := certificates.ValidateKubeletServingCSR(request, usages); err != nil {
		return err
	}
	if request.Subject.CommonName != csr.Spec.Username {
		return fmt.Errorf("it is for %q, and %q made it", request.Subject.CommonName, csr.Spec.Username)
	}
	if !slices.Equal(request.DNSNames, []string{node}) {
		return fmt.Errorf("its names are %q, and the only one of the node is %q", request.DNSNames, node)
	}
	return onlyAddresses(request.IPAddresses, own)
}

// onlyAddresses requires at least one address, and fails if any of them is not the node's
// own.
func onlyAddresses(asked []net.IP, own []netip.Addr) error {
	if len(asked) == 0 {
		return errors.New("it has no address, and kube-apiserver calls kubelets by address")
	}
	for _, ip := range asked {
		if a, ok := netip.AddrFromSlice(ip); !ok || !slices.Contains(own, a.Unmap()) {
			return fmt.Errorf("its address %s is not one of the node's container, which has %v", ip, own)
		}
	}
	return nil
}

// undecided reports whether the request was neither approved nor denied, nor failed.
func undecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 && len(csr.Status.Conditions) == 0
}

// approveKubelets approves the pending requests of this cluster's kubelets, and records why
// others are left pending. A request is immutable, so it examines each only once.
func (p *plan) approveKubelets(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeletServingSignerName).String(),
	})
	if err != nil {
		return fmt.Errorf("listing certificate signing requests: %w", err)
	}
	pending := slices.DeleteFunc(list.Items, func(csr certificatesv1.CertificateSigningRequest) bool {
		return p.leftPending[csr.Name] != "" || !undecided(&csr)
	})
	if len(pending) == 0 {
		return nil
	}
	addresses, err := p.containerAddresses(ctx)
	if err != nil {
		return err
	}
	for i := range pending {
		csr := &pending[i]
		if reason := servingRequest(csr, addresses); reason != nil {
			if p.leftPending == nil {
				p.leftPending = map[string]string{}
			}
			p.leftPending[csr.Name] = reason.Error()
			continue
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "FairleadKindNode",
			Message: "The names and addresses are those of the node's container.",
		})
		if _, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("approving certificate signing request %s: %w", csr.Name, err)
		}
	}
	return nil
}

// containerAddresses returns the addresses of the nodes' containers, by node name, as the
// container runtime assigned them. Node objects are no evidence, because their kubelets
// write them.
func (p *plan) containerAddresses(ctx context.Context) (map[string][]netip.Addr, error) {
	rt, err := p.runtime(ctx)
	if err != nil {
		return nil, err
	}
	list, err := rt.containers(ctx, rt.kind(newLogger(progress.Silent)), p.Name)
	if err != nil {
		return nil, err
	}
	out := map[string][]netip.Addr{}
	for _, n := range p.nodes() {
		for _, c := range list {
			if c.name == n.name {
				out[n.name] = c.addresses
			}
		}
	}
	return out, nil
}

// kubeletsVerified waits until kube-apiserver accepts the certificate of every node's
// kubelet. In a cluster that an earlier fairlead version created, kube-apiserver accepts any
// certificate.
func (p *plan) kubeletsVerified(ctx context.Context, client kubernetes.Interface) (string, error) {
	if err := p.approveKubelets(ctx, client); err != nil {
		return "", err
	}
	for _, n := range p.nodes() {
		err := askKubelet(ctx, client, n.name)
		if err == nil || !aboutCertificate(err) {
			continue // leave other failures to the checks: not every bundle lets agents reach every node
		}
		return "", waitError(fmt.Sprintf("kube-apiserver does not accept the certificate of the kubelet of %s: %v%s", n.name, err, p.pendingWords()))
	}
	return progress.Count(len(p.nodes()), "kubelet"), nil
}

// kubeletAnswer bounds one request to a kubelet.
const kubeletAnswer = 10 * time.Second

// askKubelet requests a node's kubelet health through kube-apiserver.
func askKubelet(ctx context.Context, client kubernetes.Interface, node string) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletAnswer)
	defer cancel()
	return client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("healthz").Do(ctx).Error()
}

// aboutCertificate reports whether kube-apiserver failed to verify a kubelet, or the kubelet
// has no certificate yet. kube-apiserver returns only the text of the error from Go's TLS.
func aboutCertificate(err error) bool {
	return strings.Contains(err.Error(), "x509: ") || strings.Contains(err.Error(), "tls: ")
}

// pendingWords describes the requests that are left pending.
func (p *plan) pendingWords() string {
	var words string
	for _, name := range slices.Sorted(maps.Keys(p.leftPending)) {
		words += fmt.Sprintf("; certificate signing request %s is left pending: %s", name, p.leftPending[name])
	}
	return words
}

// notePending shows the requests that are left pending.
func (p *plan) notePending(reporter progress.Reporter) {
	for _, name := range slices.Sorted(maps.Keys(p.leftPending)) {
		progress.Note(reporter, "certificate signing request %s of %s is left pending: %s: approve it with \"kubectl certificate approve %s\" only if you know who made it",
			name, certificatesv1.KubeletServingSignerName, p.leftPending[name], name)
	}
}
