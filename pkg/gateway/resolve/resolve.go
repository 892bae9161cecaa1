// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

const (
	// DefaultClusterDomain is what Kubernetes uses unless it is configured otherwise.
	DefaultClusterDomain = "cluster.local"
	// defaultTTL is short, because it delays the use of new endpoints: kube-proxy learns of
	// them within about a second.
	defaultTTL = 2 * time.Second
	// nodesTTL is longer: nodes seldom change, and their list is the largest answer.
	nodesTTL = 30 * time.Second
	// twoFamiliesTTL is that of the Pods with two addresses, for which all Pods are listed.
	twoFamiliesTTL = 10 * time.Second
	// maxExternalNames bounds a chain of ExternalName Services.
	maxExternalNames = 8
)

// Options of a Resolver.
type Options struct {
	// Namespace is that of names without one. The default is "default".
	Namespace string
	// ClusterDomain is the suffix of the cluster's DNS names. The default is
	// DefaultClusterDomain.
	ClusterDomain string
	// Namespaces are searched for the owner of an address if the client may not search all
	// of them. Namespace is always one of them.
	Namespaces []string
	// TTL is how long answers about Services, endpoints and Pods are reused. The default is
	// 2 seconds.
	TTL time.Duration
	// PodsByName says that the path connects to Pods by their names and not by addresses, as
	// port-forwarding does. What address an endpoint has is then of no importance.
	PodsByName bool
	// APIServer is the host:port of the API server. It is an external destination, whatever
	// object it belongs to: the API server authenticates its clients itself, so no right to that
	// object is needed. The names and addresses of Service kubernetes are names of it, and so are those of a
	// Service that is at this address.
	APIServer string
	// LookUp returns the addresses of a host outside of the cluster, for a path that connects to
	// addresses. An address that belongs to an object of the cluster is judged as that object.
	// Without LookUp such hosts have no address: the path resolves them, or refuses them.
	LookUp func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Resolver resolves hosts by objects of the API server. Make it with New.
type Resolver struct {
	client     kubernetes.Interface
	o          Options
	services   memo[service]
	endpoints  memo[[]endpoint]
	serviceIPs memo[[]service]
	pods       memo[[]pod]
	// twoFamilies has the Pods with more than one address.
	twoFamilies memo[[]pod]
	nodes       memo[[]node]
	behind      memo[map[string][]endpoint]
	names       memo[[]netip.Addr]
}

var _ gateway.Resolver = (*Resolver)(nil)

// New returns a Resolver that reads with the client's rights.
func New(client kubernetes.Interface, o Options) *Resolver {
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.ClusterDomain = clusterDomain(o.ClusterDomain)
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	if !slices.Contains(o.Namespaces, o.Namespace) {
		o.Namespaces = append([]string{o.Namespace}, o.Namespaces...)
	}
	return &Resolver{
		client: client, o: o,
		services: newMemo[service](o.TTL), endpoints: newMemo[[]endpoint](o.TTL), serviceIPs: newMemo[[]service](o.TTL),
		pods: newMemo[[]pod](o.TTL), twoFamilies: newMemo[[]pod](twoFamiliesTTL), nodes: newMemo[[]node](nodesTTL),
		names: newMemo[[]netip.Addr](o.TTL), behind: newMemo[map[string][]endpoint](o.TTL),
	}
}

// FromKubeconfig returns a Resolver for a kubeconfig. Names without a namespace are in that
// of its context, unless o says otherwise.
func FromKubeconfig(config clientcmd.ClientConfig, o Options) (*Resolver, error) {
	rc, err := config.ClientConfig()
	if err != nil {
		return nil, err
	}
	if o.Namespace == "" {
		if o.Namespace, _, err = config.Namespace(); err != nil {
			return nil, err
		}
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, err
	}
	return New(client, o), nil
}

// Namespace returns that of names without one.
func (r *Resolver) Namespace() string { return r.o.Namespace }

// Resolve returns the destination of a host and a port. For a Service it is one of the ready
// endpoints, picked at random, if that is a Pod of the Service's namespace; an endpoint that is
// none is the node, the Pod or the external address that it leads to. For an ExternalName Service whose target is outside of the
// cluster, Host is that target: the rules have to see where the connection goes.
func (r *Resolver) Resolve(ctx context.Context, host string, port uint16) (gateway.Destination, error) {
	all, err := r.candidates(ctx, host, port)
	if err != nil {
		return gateway.Destination{}, err
	}
	d, err := r.pick(ctx, all)
	if err != nil {
		return gateway.Destination{}, asError(err)
	}
	return d, nil
}

// candidates returns all destinations of a host and a port, in random order: for a Service
// each ready endpoint as its EndpointSlices name it, otherwise one. They have the same kind,
// namespace and name.
func (r *Resolver) candidates(ctx context.Context, host string, port uint16) ([]gateway.Destination, error) {
	if port == 0 {
		return nil, gateway.Errorf(gateway.ReasonUnsupported, "send the number of a port", "there is no port 0 at %q", host)
	}
	if d, ok := r.apiServer(host, port); ok {
		return []gateway.Destination{d}, nil
	}
	all, err := r.follow(ctx, host, port)
	if err != nil {
		return nil, asError(err)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// Alternatives returns some other endpoints of the Service that d is of, as they are now: Pods
// of its namespace. For an endpoint that is none, the others are what their addresses are by
// themselves, too. For a host outside of the cluster they are its other addresses. It returns none
// for other destinations.
func (r *Resolver) Alternatives(ctx context.Context, d gateway.Destination) ([]gateway.Destination, error) {
	if d.Kind == gateway.KindExternal {
		return r.otherAddresses(ctx, d)
	}
	ctx = withFresh(ctx)
	all, err := r.candidates(ctx, d.Host, d.Port)
	if err != nil {
		return nil, err
	}
	if d.Kind != gateway.KindService {
		return r.othersByThemselves(ctx, d, all), nil
	}
	// The authorizer allowed this Service only. By now the host name may resolve to another
	// one.
	return r.ownOf(ctx, slices.DeleteFunc(all, func(o gateway.Destination) bool {
		same := o.Addr == d.Addr && (o.Pod == d.Pod || !r.o.PodsByName)
		return same || o.Kind != d.Kind || o.Namespace != d.Namespace || o.Name != d.Name
	}))
}

// follow resolves a host, through ExternalName Services if there are any. What denies the first of these denies what it
// leads to.
func (r *Resolver) follow(ctx context.Context, host string, port uint16) ([]gateway.Destination, error) {
	sent, seen := host, []string{}
	var through types.NamespacedName
	for {
		q, err := parse(host, r.o.Namespace, r.o.ClusterDomain)
		if err != nil {
			return nil, err
		}
		all, target, err := r.lookUp(ctx, q, port)
		if err != nil {
			return nil, err
		}
		if target == "" {
			for i := range all {
				if all[i].Kind != gateway.KindExternal {
					all[i].Host = sent
				}
				all[i].Through = through
			}
			return all, nil
		}
		through = cmp.Or(through, types.NamespacedName{Namespace: q.namespace, Name: q.service})
		seen = append(seen, q.host)
		if len(seen) >= maxExternalNames || slices.Contains(seen, strings.TrimSuffix(strings.ToLower(target), ".")) {
			return nil, gateway.Errorf(gateway.ReasonNotFound, "correct spec.externalName of one of these Services",
				"%s is a chain of ExternalName Services without an end: %s", sent, strings.Join(append(seen, target), ", "))
		}
		host = target
		// The target is an absolute name. Read as SVC.NS it would be a Service by accident.
		if _, err := netip.ParseAddr(host); err != nil {
			host = strings.TrimSuffix(host, ".") + "."
		}
	}
}

// lookUp resolves one name or address. It returns the target of an ExternalName Service.
func (r *Resolver) lookUp(ctx context.Context, q query, port uint16) (all []gateway.Destination, target string, err error) {
	if q.addr.IsValid() {
		return r.byAddr(ctx, q.addr, port)
	}
	// Which Pod has an address is known afterwards only.
	if err := gateway.CheckName(ctx, q.meanings(port)...); err != nil && !q.podAddr.IsValid() {
		return nil, "", err
	}
	if q.podAddr.IsValid() {
		all, err = r.podByAddr(ctx, q, port)
		return all, "", err
	}
	if q.service != "" {
		svc, err := r.service(ctx, q.namespace, q.service)
		switch {
		case err == nil && svc.externalName != "" && q.hostname == "":
			return nil, svc.externalName, nil
		case err == nil:
			if d, ok := r.asAPIServer(svc, port); ok && q.hostname == "" {
				return []gateway.Destination{d}, "", nil
			}
			all, err = r.serviceEndpoints(ctx, svc, q, port)
			return all, "", err
		case !q.maybe, !apierrors.IsNotFound(err):
			return nil, "", r.serviceError(err, q)
		}
	}
	all, err = r.nodeOrExternal(ctx, q, port)
	return all, "", err
}

// nodeOrExternal resolves a name that is none of a Service.
func (r *Resolver) nodeOrExternal(ctx context.Context, q query, port uint16) ([]gateway.Destination, error) {
	external := strings.Contains(q.host, ".")
	if q.service != "" && gateway.CheckName(ctx, q.others(port)...) != nil {
		return nil, q.noService() // the client may reach the Service only, which does not exist
	}
	n, err := r.nodeByName(ctx, q.host)
	switch {
	case err == nil && n != nil:
		return nodeDestination(n, netip.Addr{}, q.host, port)
	case external && (err == nil || apierrors.IsForbidden(err)):
		return r.external(ctx, q.host, port)
	case err != nil && !apierrors.IsForbidden(err):
		return nil, apiError(err, "find a node named "+q.host)
	case err != nil:
		return nil, gateway.Errorf(gateway.ReasonNotFound, "write SERVICE.NAMESPACE; to reach nodes, ask for the right to get and list nodes",
			"namespace %q has no Service %q, and nodes cannot be read: %w", q.namespace, q.service, err)
	}
	return nil, gateway.Errorf(gateway.ReasonNotFound, "write SERVICE.NAMESPACE for a Service in another namespace",
		"namespace %q has no Service %q, and no node has this name", q.namespace, q.service)
}

func (q *query) noService() error {
	return gateway.Errorf(gateway.ReasonNotFound, fmt.Sprintf("see kubectl get services -n %s", q.namespace),
		"namespace %q has no Service %q", q.namespace, q.service)
}

func (r *Resolver) serviceError(err error, q query) error {
	if apierrors.IsNotFound(err) {
		return q.noService()
	}
	if apierrors.IsForbidden(err) && q.maybe && strings.Contains(q.host, ".") {
		return gateway.Errorf(gateway.ReasonDenied,
			fmt.Sprintf("ask for that right, or write %s. with a dot at its end if it is a host outside of the cluster", q.host),
			"%s may be a Service of the cluster, but it cannot be read: %w", q.host, err)
	}
	return apiError(err, fmt.Sprintf("read Service %s/%s", q.namespace, q.service))
}

// apiError describes a failed request to the API server.
func apiError(err error, what string) *gateway.Error {
	var known *gateway.Error
	switch {
	case errors.As(err, &known):
		return known
	case apierrors.IsForbidden(err):
		return gateway.Errorf(gateway.ReasonDenied,
			"ask for a Role or ClusterRole with this right; resolving needs get on services, list on endpointslices.discovery.k8s.io, and for addresses and nodes list on services, pods and nodes",
			"cannot %s: %w", what, err)
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return gateway.Errorf(gateway.ReasonTimeout, "check that the API server answers: kubectl get --raw /readyz", "cannot %s: %w", what, err)
	case apierrors.IsUnauthorized(err):
		return gateway.Errorf(gateway.ReasonPathDown, "renew the credentials of the kubeconfig", "cannot %s: %w", what, err)
	}
	return gateway.Errorf(gateway.ReasonPathDown, "check that the API server answers: kubectl get --raw /readyz", "cannot %s: %w", what, err)
}

func asError(err error) *gateway.Error { return apiError(err, "resolve") }
