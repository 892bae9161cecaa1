// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
)

// Bounds of the priorities, as kube-apiserver has them.
const (
	MaxGroupPriority   = 20000
	MaxVersionPriority = 1000
)

// Defaults of a Request. The group priority is low, so that no built-in group loses to it.
const (
	DefaultPort            = 443
	DefaultGroupPriority   = 1000
	DefaultVersionPriority = 15
)

// Request describes an extension API server.
type Request struct {
	// Group and Version of the API.
	Group, Version string
	// Namespace and Service are where kube-apiserver reaches the server, at Port.
	Namespace, Service string
	Port               int32
	// GroupPriority and VersionPriority order groups and versions in discovery; the higher one wins.
	GroupPriority, VersionPriority int32
	// ServiceAccount is the identity of the server's Pods.
	ServiceAccount string
}

// Defaulted returns the request with defaults for what is not set.
func (r Request) Defaulted() Request {
	set := func(n *int32, v int32) {
		if *n == 0 {
			*n = v
		}
	}
	set(&r.Port, DefaultPort)
	set(&r.GroupPriority, DefaultGroupPriority)
	set(&r.VersionPriority, DefaultVersionPriority)
	if r.ServiceAccount == "" {
		r.ServiceAccount = r.Service
	}
	return r
}

// Name is the name of the APIService. kube-apiserver accepts no other.
func (r Request) Name() string { return r.Version + "." + r.Group }

// Host is the name for which the server's certificate must be.
func (r Request) Host() string { return r.Service + "." + r.Namespace + ".svc" }

// SecretName is the name of the Secret with the serving certificate.
func (r Request) SecretName() string { return r.Service + "-tls" }

// Validate checks a defaulted request.
func (r Request) Validate() error {
	var errs []error
	check := func(what, value string, problems []string) {
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s", what, value, strings.Join(problems, "; ")))
		}
	}
	check("group", r.Group, validation.IsDNS1123Subdomain(r.Group))
	check("version", r.Version, validation.IsDNS1035Label(r.Version))
	check("namespace", r.Namespace, validation.IsDNS1123Label(r.Namespace))
	check("service", r.Service, validation.IsDNS1035Label(r.Service))
	check("service account", r.ServiceAccount, validation.IsDNS1123Subdomain(r.ServiceAccount))
	if !strings.Contains(r.Group, ".") {
		errs = append(errs, fmt.Errorf("group %q must have a dot, such as example.com: groups without one are Kubernetes' own", r.Group))
	}
	between := func(what string, n, most int32) {
		if n < 1 || n > most {
			errs = append(errs, fmt.Errorf("%s %d must be between 1 and %d", what, n, most))
		}
	}
	between("port", r.Port, 65535)
	between("group priority", r.GroupPriority, MaxGroupPriority)
	between("version priority", r.VersionPriority, MaxVersionPriority)
	return errors.Join(errs...)
}

// Issue makes a serving certificate for the server, signed by ca.
func (r Request) Issue(cfg pki.Config, ca pki.KeyPair, now time.Time) (pki.KeyPair, error) {
	return ca.Issue(cfg, pki.Request{CommonName: r.Host(), DNSNames: []string{r.Host()}, Usages: pki.ServerAuth}, now)
}

// Objects returns the server's ServiceAccount, its rights, the Secret with its certificate, and last the APIService.
// caBundle is the PEM of the CAs that verify the certificate. Create the APIService when the server answers, and delete
// it first: while it is registered and not available, kube-apiserver deletes no namespace.
func (r Request) Objects(caBundle []byte, serving pki.KeyPair) ([]component.Object, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := verify(caBundle, serving, r.Host()); err != nil {
		return nil, err
	}
	key, err := serving.KeyPEM()
	if err != nil {
		return nil, err
	}
	out := []component.Object{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Name: r.ServiceAccount, Namespace: r.Namespace}},
	}
	out = append(out, r.Bindings()...)
	return append(out,
		&corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: r.SecretName(), Namespace: r.Namespace},
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: serving.CertPEM(), corev1.TLSPrivateKeyKey: key},
		},
		r.APIService(caBundle)), nil
}

// Bindings give the server's ServiceAccount the rights that delegated authentication and authorization need.
func (r Request) Bindings() []component.Object {
	subject, name := rbac.ServiceAccount(r.Namespace, r.ServiceAccount), r.Namespace+":"+r.ServiceAccount
	return []component.Object{
		// The server asks kube-apiserver who a token belongs to, and what a user may do.
		rbac.ClusterRoleBinding(name+":auth-delegator", "system:auth-delegator", subject),
		// It reads and watches the CA and the names of the front proxy. That is a Role in kube-system.
		rbac.RoleBinding(metav1.NamespaceSystem, name+":authentication-reader", "extension-apiserver-authentication-reader", subject),
	}
}

// APIService registers the server. caBundle is the PEM of the CAs that verify its certificate.
func (r Request) APIService(caBundle []byte) *apiregistrationv1.APIService {
	port := r.Port
	return &apiregistrationv1.APIService{
		TypeMeta: metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"}, ObjectMeta: metav1.ObjectMeta{Name: r.Name()},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: r.Group, Version: r.Version, GroupPriorityMinimum: r.GroupPriority, VersionPriority: r.VersionPriority, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: r.Namespace, Name: r.Service, Port: &port},
		},
	}
}

// verify refuses a bundle that does not verify the certificate: kube-apiserver would call the API unavailable.
func verify(caBundle []byte, serving pki.KeyPair, host string) error {
	if !bytes.Contains(caBundle, []byte("-----BEGIN CERTIFICATE-----")) {
		return errors.New("the CA bundle is not PEM: pass the certificate file as it is, without base64")
	}
	cas, err := pki.ParseCerts(caBundle)
	if err != nil {
		return fmt.Errorf("read the CA bundle: %w", err)
	}
	if err := serving.Cert.VerifyHostname(host); err != nil {
		return fmt.Errorf("the serving certificate is for another name: %w: kube-apiserver verifies it for %s", err, host)
	}
	for _, ca := range cas {
		if serving.Cert.CheckSignatureFrom(ca) == nil {
			return nil
		}
	}
	return errors.New("the serving certificate is not signed by a CA of the bundle: use the CA that signed it")
}
