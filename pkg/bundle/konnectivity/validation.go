// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Validate checks that no extra argument contradicts the bundle: extra
// arguments are the only way to give server and agent settings that differ.
// v1alpha1.Validate must have passed.
func Validate(b *v1alpha1.Bundle) field.ErrorList {
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		return nil
	}
	k, p := &b.Konnectivity, field.NewPath("spec", "konnectivity")
	errs := component.ValidateExtraArgs(k.Server.ExtraArgs, serverFlagOwners(b), p.Child("server", "extraArgs"))
	return append(errs, component.ValidateExtraArgs(k.Agent.ExtraArgs, agentFlagOwners(k), p.Child("agent", "extraArgs"))...)
}

func set(name string) string { return component.SetField("konnectivity." + name) }

func serverFlagOwners(b *v1alpha1.Bundle) map[string]string {
	owners := map[string]string{
		"logtostderr":              "the container's log is where logs belong",
		"uds-name":                 set("transport.uds.path"),
		"delete-existing-uds-file": "without it a restart would fail on the old socket",
		"server-port":              set("transport.tcp.url"),
		"server-cert":              set("transport.tcp.serverCert"),
		"server-key":               set("transport.tcp.serverKey"),
		"server-ca-cert":           set("transport.tcp.clientCA"),
		"cluster-cert":             set("server.certFile"),
		"cluster-key":              set("server.keyFile"),
		"cluster-ca-cert":          "agents prove themselves with tokens, which excludes it",
		"mode":                     set("proxyProtocol"),
		"agent-port":               set("agentPort"),
		"admin-port":               set("server.adminPort"),
		"health-port":              set("server.healthPort"),
		"health-bind-address":      set("server.healthBindAddress"),
		"agent-namespace":          component.SetField("namespace"),
		"agent-service-account":    set("agentServiceAccount"),
		"kubeconfig":               set("server.kubeconfig"),
		"authentication-audience":  set("authenticationAudience"),
		"server-count":             set("server.count"),
		"proxy-strategies":         set("server.proxyStrategies"),
		"server-id":                "each server generates its own; agents take servers with the same ID for one",
		"enable-lease-controller":  set("leaseCounting"),
		"lease-namespace":          set("leaseNamespace"),
		"lease-label":              "it is the label of the server's Pods",
	}
	if ptr.Deref(b.TunnelAPI.Enabled, false) {
		for name, owner := range map[string]string{"state-port": "statePort", "state-service-account": "enabled", "state-audience": "enabled", "state-connect": "connect"} {
			owners[name] = component.SetField("tunnelAPI." + owner)
		}
		if b.TunnelAPI.ClusterIP != "" {
			owners["local-destinations"] = "tunnelAPI.clusterIP sets it; remove one of the two"
		}
	}
	return owners
}

func agentFlagOwners(k *v1alpha1.Konnectivity) map[string]string {
	owners := map[string]string{
		"logtostderr":                "the container's log is where logs belong",
		"ca-cert":                    "it is the cluster's CA, which is mounted there",
		"agent-cert":                 "agents prove themselves with tokens",
		"agent-key":                  "agents prove themselves with tokens",
		"proxy-server-host":          set("serverHost"),
		"proxy-server-port":          set("agentPort"),
		"admin-server-port":          set("agent.adminPort"),
		"health-server-port":         set("agent.healthPort"),
		"service-account-token-path": "the token is mounted there",
		"agent-identifiers":          set("agent.identifiers"),
		"count-server-leases":        set("leaseCounting"),
		"server-count-source":        "leaseCounting sets it to max; without leaseCounting there are no Leases to count",
		"lease-namespace":            set("leaseNamespace"),
		"lease-label":                "it is the label of the server's Pods",
	}
	if manyServers(k) {
		owners["sync-forever"] = "with several servers it is always on"
	}
	return owners
}
