// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

var (
	// Scheme has the types of the API.
	Scheme = runtime.NewScheme()
	// Codecs encode them.
	Codecs = serializer.NewCodecFactory(Scheme)
)

func init() { //nolint:gochecknoinits // schemes are filled as the API groups of Kubernetes do
	utilruntime.Must(v1alpha1.AddToScheme(Scheme))
	utilruntime.Must(Scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(Scheme, unversioned)
	Scheme.AddUnversionedTypes(unversioned, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
}

// Group is the API group.
type Group struct {
	Agents, Servers *Watched
	Connections     *Connections
	connect         *Connect
}

// Serve adds the subresource tunnelagents/portforward, before Info.
func (g *Group) Serve(s ConnectServer) { g.connect = &Connect{agents: g.Agents, server: s} }

// New returns the group. started is when the process started: it is the epoch of resource versions. maxWatches bounds the
// watches of all resources together, and maxPerUser those of one user.
func New(source Source, started time.Time, maxWatches, maxPerUser int) (*Group, error) {
	codec, watches := Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion), &places{most: maxWatches, perUser: maxPerUser}
	a, err := newWatched(agents, source, codec, started, watches)
	if err != nil {
		return nil, err
	}
	s, err := newWatched(servers, source, codec, started, watches)
	if err != nil {
		a.Destroy()
		return nil, err
	}
	return &Group{Agents: a, Servers: s, Connections: newConnections(source, started)}, nil
}

// Info is what an API server installs.
func (g *Group) Info() *genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, Scheme, runtime.NewParameterCodec(Scheme), Codecs)
	resources := map[string]rest.Storage{"tunnelagents": g.Agents, "tunnelservers": g.Servers, "tunnelconnections": g.Connections}
	if g.connect != nil {
		resources["tunnelagents/"+v1alpha1.SubresourceConnect] = g.connect
	}
	info.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = resources
	return &info
}
