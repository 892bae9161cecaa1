// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAlign(t *testing.T) {
	const root = `module root

go 1.26.2

require (
	example.com/shared v1.5.0
	k8s.io/api v0.37.1 // indirect
	k8s.io/kubernetes v1.37.1
)
`
	const pinned = `module pinned

go 1.26.2

tool k8s.io/kubernetes/cmd/kubectl

require (
	example.com/own v1.0.0 // indirect
	example.com/shared v1.4.0 // indirect
	k8s.io/api v0.36.3 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	k8s.io/kubectl v0.36.3 // indirect
	k8s.io/kubernetes v1.36.3 // indirect
)
`
	const kubernetes = `module k8s.io/kubernetes

go 1.27.0

require k8s.io/api v0.0.0

replace (
	example.com/fork => example.com/forked v1.0.0
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
	k8s.io/unused => ./staging/src/k8s.io/unused
)
`
	const want = `module pinned

go 1.26.2

tool k8s.io/kubernetes/cmd/kubectl

require (
	example.com/own v1.0.0 // indirect
	example.com/shared v1.5.0 // indirect
	k8s.io/api v0.37.1 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	k8s.io/kubectl v0.37.1 // indirect
	k8s.io/kubernetes v1.37.1 // indirect
)
`
	asked := ""
	got, err := align([]byte(root), []byte(pinned), func(version string) ([]byte, error) {
		asked = version
		return []byte(kubernetes), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if asked != "v1.37.1" {
		t.Errorf("asked for Kubernetes %q, want v1.37.1", asked)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("aligned go.mod (-want +got):\n%s", diff)
	}
}

func TestAlignNeedsKubernetes(t *testing.T) {
	if _, err := align([]byte("module root\n"), []byte("module pinned\n"), nil); err == nil {
		t.Error("no error for a root module without Kubernetes")
	}
}
