// SPDX-License-Identifier: Apache-2.0

package components

import (
	"fmt"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// stripped leaves out symbol table and debug information: a third of the size of the binaries.
const stripped = "-s -w"

// KubernetesLDFlags stamps a Kubernetes version into a binary that links Kubernetes' code. Without it the binary says
// v0.0.0-master, and kubeadm and the kubelet refuse each other. The build date stays out, so that builds are
// reproducible; the commit is not known from a module.
func KubernetesLDFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/client-go/pkg/version", "k8s.io/component-base/version"} {
		flags = append(flags,
			fmt.Sprintf("-X %s.gitVersion=%s", pkg, version),
			fmt.Sprintf("-X %s.gitMajor=%s", pkg, major),
			fmt.Sprintf("-X %s.gitMinor=%s", pkg, minor),
			fmt.Sprintf("-X %s.gitTreeState=clean", pkg),
			fmt.Sprintf("-X %s.gitCommit=", pkg),
		)
	}
	return strings.Join(flags, " ")
}

func ldflags(mod module.Version, requires []*modfile.Require) string {
	switch mod.Path {
	case KubernetesModule:
		return stripped + " " + KubernetesLDFlags(mod.Version)
	case KwokModule:
		kubernetes := moduleOf(KubernetesModule, requires).Version
		return fmt.Sprintf("%s -X sigs.k8s.io/kwok/pkg/consts.Version=%s -X sigs.k8s.io/kwok/pkg/consts.KubeVersion=%s",
			stripped, strings.TrimPrefix(mod.Version, "v"), strings.TrimPrefix(kubernetes, "v"))
	case EtcdModule:
		// etcd's version is a constant of its source; `etcd --version` prints this next to it.
		return fmt.Sprintf("%s -X go.etcd.io/etcd/api/v3/version.GitSHA=%s@%s", stripped, mod.Path, mod.Version)
	default:
		return stripped
	}
}
