// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// Validate checks what only the program knows: its rules for destinations and its flags.
// v1alpha1.Validate must have passed.
func Validate(b *v1alpha1.Bundle) field.ErrorList {
	if !Enabled(b) {
		return nil
	}
	g, p := &b.Gateway, field.NewPath("gateway")
	errs := validateRules(g.Allow, p.Child("allow"))
	errs = append(errs, validateRules(g.Deny, p.Child("deny"))...)
	return append(errs, component.ValidateExtraArgs(g.ExtraArgs, flagOwners(), p.Child("extraArgs"))...)
}

func validateRules(list []string, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, text := range list {
		rules, err := destinations.ParseRules(text)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(p.Index(i), text, err.Error()))
		case len(rules) != 1:
			errs = append(errs, field.Invalid(p.Index(i), text, "must be one CIDR, address or host name, with an optional :port"))
		}
	}
	return errs
}

func flagOwners() map[string]string {
	set := func(name string) string { return component.SetField("gateway." + name) }
	const through = "the static Pod connects through its node's Konnectivity server, and the Deployment by itself"
	const review = "clients prove who they are with tokens, and the API server decides what they may reach"
	owners := map[string]string{
		"listen": set("port"), "metrics-address": set("healthPort"), "rules": set("rules"), "allow": set("allow"), "deny": set("deny"),
		"only":     "the list of the agents, allow-destinations in konnectivity.agent.extraArgs, holds for the gateway, too",
		"tls-cert": set("certificateSecret or gateway.certFile"), "tls-key": set("certificateSecret or gateway.keyFile"),
		"client-ca": set("clientCertificates"), "token-audience": set("tokenAudiences"), "kubeconfig": set("kubeconfig"), "via": set("form"),
		"token-review": review, "access-review": review,
		"insecure-no-auth": "clients on the network must prove who they are", "insecure-no-tls": "tokens must not cross the network in clear text",
		"password-file": "a shared password names no user to authorize", "url-file": "there is no random password",
		"write-kubeconfig": "the Pod has no kubeconfig of a user", "context-name": "the Pod has no kubeconfig of a user",
	}
	for _, name := range []string{"server-socket", "server-address", "server-mode", "server-cert", "server-key", "server-ca", "server-name"} {
		owners[name] = through
	}
	return owners
}
