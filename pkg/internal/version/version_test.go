// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"
)

func TestFromBuild(t *testing.T) {
	kubernetes := &debug.Module{Path: "k8s.io/kubernetes", Version: "v1.36.3"}
	tests := []struct {
		name           string
		stamped        string
		build          debug.BuildInfo
		wantVersion    string
		wantKubernetes string
	}{
		{
			name:           "stamped by the Makefile",
			stamped:        "v1.2.3",
			build:          debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "(devel)"}, Deps: []*debug.Module{kubernetes}},
			wantVersion:    "v1.2.3",
			wantKubernetes: "v1.36.3",
		},
		{
			name:        "go install of a release",
			build:       debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "v1.3.0"}},
			wantVersion: "v1.3.0",
		},
		{
			name:        "go build of a working copy",
			build:       debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "(devel)"}},
			wantVersion: "v0.0.0-devel",
		},
		{
			name: "linked into another program, whose version is not ours",
			build: debug.BuildInfo{
				Main: debug.Module{Path: "example.com/other", Version: "v9.0.0"},
				Deps: []*debug.Module{{Path: modulePath, Version: "v1.4.0"}},
			},
			wantVersion: "v1.4.0",
		},
		{
			name: "replaced module",
			build: debug.BuildInfo{Deps: []*debug.Module{
				{Path: "k8s.io/kubernetes", Version: "v1.36.3", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.36.4"}},
			}},
			wantVersion:    "v0.0.0-devel",
			wantKubernetes: "v1.36.4",
		},
		{name: "no build information", wantVersion: "v0.0.0-devel"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := fromBuild(tt.stamped, &tt.build)
			if got.Version != tt.wantVersion || got.Kubernetes != tt.wantKubernetes {
				t.Errorf("got %q with Kubernetes %q, want %q with %q", got.Version, got.Kubernetes, tt.wantVersion, tt.wantKubernetes)
			}
		})
	}
}
