// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/certs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// FileDiff is what a run would do to one file, or to kubeadm's ConfigMap.
type FileDiff struct {
	// Path of the file, or "ConfigMap kube-system/kubeadm-config".
	Path string `json:"path"`
	// Action is create, replace or remove.
	Action string `json:"action"`
	// Mode of the new file, such as "0600".
	Mode string `json:"mode,omitempty"`
	// Diff is a unified diff. It is empty if the content is secret.
	Diff   string `json:"diff,omitempty"`
	Secret bool   `json:"secret,omitempty"`
}

// PlanInstall returns what Install would change, and changes nothing. It fails if
// Install would refuse.
func PlanInstall(ctx context.Context, o Options) ([]FileDiff, error) {
	n := newNode(o.defaulted())
	if err := n.checkNode(); err != nil {
		return nil, preflightError(err)
	}
	if err := n.settledState(); err != nil {
		return nil, preflightError(err)
	}
	n.takeOver(ctx)
	j, err := n.planInstall(ctx)
	if err != nil {
		return nil, preflightError(err)
	}
	return fileDiffs(n, j)
}

// PlanUninstall returns what Uninstall would change and what it would leave, and
// changes nothing.
func PlanUninstall(ctx context.Context, o Options) (diffs []FileDiff, left []string, err error) {
	n := newNode(o.defaulted())
	if err := n.checkNode(); err != nil {
		return nil, nil, preflightError(err)
	}
	if err := n.settledState(); err != nil {
		return nil, nil, preflightError(err)
	}
	if n.state == nil {
		return nil, nil, ErrNotInstalled
	}
	if err := n.checkCluster(ctx); err != nil {
		return nil, nil, preflightError(err)
	}
	j, left, err := n.planUninstall(ctx)
	if err != nil {
		return nil, nil, preflightError(err)
	}
	diffs, err = fileDiffs(n, j)
	return diffs, left, err
}

func fileDiffs(n *node, j *journal.Journal) ([]FileDiff, error) {
	var out []FileDiff
	for _, c := range j.Changes {
		old, err := n.Read(c.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		d := FileDiff{Path: c.Path, Action: "replace", Mode: fmt.Sprintf("%04o", c.Mode), Secret: c.Secret || isSecret(n.bundle, c.Path) || redact.IsSecret(old) || redact.IsSecret(c.Data)}
		from, to := c.Path, c.Path
		if c.Old == nodefs.Absent {
			d.Action, from = "create", "/dev/null"
		}
		if c.Remove {
			d.Action, to, d.Mode = "remove", "/dev/null", ""
		}
		if !d.Secret {
			if d.Diff, err = unified(from, to, readable(old), readable(c.Data)); err != nil {
				return nil, err
			}
		}
		out = append(out, d)
	}
	if k := j.Kubeadm; k != nil {
		name := "ConfigMap kube-system/" + manifests.KubeadmConfigMap
		d := FileDiff{Path: name, Action: "replace", Secret: redact.IsSecret([]byte(k.Before)) || redact.IsSecret([]byte(k.After))}
		if !d.Secret {
			var err error
			if d.Diff, err = unified(name, name, k.Before, k.After); err != nil {
				return nil, err
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// isSecret reports whether the bundle uses a file for a private key, whatever its
// content.
func isSecret(b *v1alpha1.Bundle, p string) bool {
	k := &b.Konnectivity
	if tcp := k.Transport.TCP; tcp != nil && (p == tcp.ServerKey || p == tcp.ClientKey) {
		return true
	}
	return p == k.Server.Kubeconfig || p == k.Server.KeyFile || strings.HasSuffix(p, ".key")
}

// readable returns the text to compare: the fields of certificates, not their
// encoding.
func readable(data []byte) string {
	chain, err := pki.ParseCerts(data)
	if err != nil {
		return string(data)
	}
	var out strings.Builder
	for _, c := range chain {
		fmt.Fprintf(&out, "certificate of %s, signed by %s\n", certs.NameOf(c.Subject), certs.NameOf(c.Issuer))
		fmt.Fprintf(&out, "  valid until %s\n", c.NotAfter.UTC().Format(time.RFC3339))
		fmt.Fprintf(&out, "  public key %x\n", sha256.Sum256(c.RawSubjectPublicKeyInfo))
		for _, name := range c.DNSNames {
			fmt.Fprintf(&out, "  name %s\n", name)
		}
		for _, ip := range c.IPAddresses {
			fmt.Fprintf(&out, "  address %s\n", ip)
		}
	}
	return out.String()
}

func unified(from, to, before, after string) (string, error) {
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: diffLines(before), B: diffLines(after), FromFile: from, ToFile: to, Context: 3,
	})
}

// diffLines ends every line with a newline, including the last, because the diff
// cannot mark a missing newline.
func diffLines(text string) []string {
	lines := slices.Collect(strings.Lines(text))
	if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
		lines[n-1] += "\n"
	}
	return lines
}
