// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the name of the API group.
const GroupName = "tunnel.fairlead.dev"

// SchemeGroupVersion is the group and version of the types.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// Path is where kube-apiserver serves the API.
var Path = "/apis/" + SchemeGroupVersion.String()

// Resource returns a resource of the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the types to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&TunnelAgent{}, &TunnelAgentList{}, &TunnelServer{}, &TunnelServerList{}, &TunnelConnection{}, &TunnelConnectionList{},
		&TunnelAgentConnectOptions{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	for kind, fields := range map[string][]string{
		"TunnelAgent":      AgentFields,
		"TunnelServer":     nil,
		"TunnelConnection": ConnectionFields,
	} {
		if err := scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind(kind), selectable(kind, fields)); err != nil {
			return err
		}
	}
	return scheme.AddConversionFunc((*url.Values)(nil), (*TunnelAgentConnectOptions)(nil), func(from, to any, _ conversion.Scope) error {
		connectOptionsOf(*from.(*url.Values), to.(*TunnelAgentConnectOptions))
		return nil
	})
}

// Fields that a field selector may name.
const (
	FieldName = "metadata.name"
	// FieldNodeName is the node of an agent or connection.
	FieldNodeName = "status.nodeName"
	// FieldAgentID is the ID of an agent, or of the agent of a connection.
	FieldAgentID = "status.agentID"
	// FieldDraining is "true" for an agent all of whose links drain.
	FieldDraining = "status.draining"
	// FieldServerID is the ID of the server of a connection.
	FieldServerID = "status.serverID"
	// FieldDestination is the address that a connection leads to.
	FieldDestination = "status.destination"
)

var (
	// AgentFields are the fields of TunnelAgents that a field selector may name, in addition to metadata.name.
	AgentFields = []string{FieldNodeName, FieldAgentID, FieldDraining}
	// ConnectionFields are those of TunnelConnections.
	ConnectionFields = []string{FieldAgentID, FieldNodeName, FieldServerID, FieldDestination}
)

// selectable refuses field selectors with other fields.
func selectable(kind string, fields []string) runtime.FieldLabelConversionFunc {
	known := append([]string{FieldName}, fields...)
	return func(label, value string) (string, string, error) {
		for _, f := range known {
			if label == f {
				return label, value, nil
			}
		}
		return "", "", fmt.Errorf("field label %q is not supported for %s: use one of %v", label, kind, known)
	}
}
