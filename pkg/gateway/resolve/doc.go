// SPDX-License-Identifier: Apache-2.0

// Package resolve turns host names and addresses into destinations in a cluster, without
// DNS: it reads Services, EndpointSlices, Pods and nodes from the API server.
//
// It holds no watches. Each answer is kept for a short time, trimmed to the few fields that
// matter, so memory stays small in large clusters, and a client whose rights cover only some
// namespaces can resolve the names in those.
//
// Names are read as the cluster's DNS reads them: SVC, SVC.NS, SVC.NS.svc and
// SVC.NS.svc.DOMAIN are Services, POD.SVC.NS.svc is a Pod of a headless Service, and
// 10-0-0-1.NS.pod is a Pod by its address. The names and addresses of nodes are nodes,
// cluster IPs are Services, and Pod addresses are Pods. Anything else is external; a name
// keeps its external meaning, without a look at the Services, if it ends with a dot.
//
// Start with New in resolve.go; parse.go reads names, address.go literal addresses.
package resolve
