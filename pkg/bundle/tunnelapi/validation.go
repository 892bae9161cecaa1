// SPDX-License-Identifier: Apache-2.0

package tunnelapi

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Validate checks what v1alpha1.Validate, which must have passed, does not know: flags and certificates.
func Validate(b *v1alpha1.Bundle) field.ErrorList {
	if !Enabled(b) {
		return nil
	}
	a, p := &b.TunnelAPI, field.NewPath("spec", "tunnelAPI")
	errs := component.ValidateExtraArgs(a.ExtraArgs, flagOwners(), p.Child("extraArgs"))
	if a.CABundle != "" {
		if certs, err := pki.ParseCerts([]byte(a.CABundle)); err != nil || len(certs) == 0 {
			errs = append(errs, field.Invalid(p.Child("caBundle"), "", "must be certificates in PEM, without further base64"))
		}
	}
	return errs
}

func flagOwners() map[string]string {
	set := func(name string) string { return component.SetField("tunnelAPI." + name) }
	const identity = "the Pods' ServiceAccount is the API server's identity"
	return map[string]string{
		"secure-port": set("port"), "tls-cert-file": set("certificateSecret"), "tls-private-key-file": set("certificateSecret"),
		"cert-dir": set("certificateSecret"), "tls-sni-cert-key": set("certificateSecret"), "bind-address": "the Service reaches all Pods by their own addresses",
		"konnectivity-server": set("statePort") + ", or konnectivity.serverHost", "konnectivity-server-ca-file": "it is the cluster's CA, which is mounted there",
		"konnectivity-server-token-file": "the token is mounted there",
		"connect":                        set("connect"),
		"kubeconfig":                     identity, "authentication-kubeconfig": identity, "authorization-kubeconfig": identity,
		"authentication-tolerate-lookup-failure": "everyone would be anonymous without the front proxy's CA",
		"authorization-always-allow-paths":       "health paths are allowed already, and nothing else is public",
	}
}
