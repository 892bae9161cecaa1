// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	kinddefaults "sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

var (
	// ErrNoImage is returned if there is no node image.
	ErrNoImage = errors.New("no node image")
	// ErrImage is returned if an image is not a node image, or not a suitable one.
	ErrImage = errors.New("the node image does not fit")
)

// facts determine the configuration and are unknown until the image is available:
// properties of the image itself, and of containers on this machine.
type facts struct {
	// version is the image's Kubernetes version, such as v1.36.3.
	version string
	// defaultCNI means that the image contains a Pod network that kind can install.
	defaultCNI bool
	// sysResource means that containers have CAP_SYS_RESOURCE.
	sysResource bool
	// cgroupV1 means that containers see cgroup v1.
	cgroupV1 bool
	// baked holds the digests of the images in the node image by name, as far as the image
	// lists them.
	baked map[string]string
}

// probe prints the facts about the image and the machine from inside a container of the
// image, one fact per line. kind's own files are at the paths where kind expects them.
const probe = `set -u
list=` + nodeimage.ImageList + `
echo "version $(cat /kind/version)"
grep -qs '^kind: DaemonSet' /kind/manifests/default-cni.yaml && echo cni
[ -f /sys/fs/cgroup/cgroup.controllers ] || echo cgroup1
echo "caps $(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)"
[ -f "$list" ] && sed 's/^/image /' "$list"
true`

// capSysResource is the number of CAP_SYS_RESOURCE.
const capSysResource = 24

// noCapability is the start of runc's error if it may not grant what --privileged
// requests.
const noCapability = "unable to apply caps"

// look runs a container of the image briefly to determine the facts.
func (r *runtime) look(ctx context.Context, image string) (facts, error) {
	out, err := r.run(ctx, "run", "--rm", "--privileged", "--network=none", "--entrypoint=/bin/sh", r.imageName(image), "-c", probe)
	if err != nil {
		if ctx.Err() != nil {
			return facts{}, err
		}
		if strings.Contains(err.Error(), noCapability) {
			return facts{}, fmt.Errorf("%w: a privileged container of %s does not start: %w: this machine has not all capabilities itself, so the container runtime needs a wrapper that leaves them out: docs/node-image.md has one, and \"go -C e2e/offline run ./dockerd start\" in the repository starts a Docker with it", ErrRuntimeDenied, image, err)
		}
		return facts{}, fmt.Errorf("%w: a container of %s does not start: %w: choose another --image, or see what the container runtime says of it", ErrImage, image, err)
	}
	f := facts{baked: map[string]string{}}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "version" && len(fields) > 1:
			f.version = fields[1]
		case fields[0] == "cni":
			f.defaultCNI = true
		case fields[0] == "cgroup1":
			f.cgroupV1 = true
		case fields[0] == "caps" && len(fields) > 1:
			caps, err := strconv.ParseUint(fields[1], 16, 64)
			f.sysResource = err != nil || caps&(1<<capSysResource) != 0
		case fields[0] == "image" && len(fields) > 2:
			f.baked[fields[1]] = fields[2]
		}
	}
	return f, checkVersion(image, f.version)
}

// checkVersion refuses a Kubernetes version that the bundle does not support. It may not
// be older than the pinned minor version: kube-scheduler must not be newer than the API
// server (version skew policy), and kind writes a kubeadm configuration of another version
// for older ones. It may be newer by at most one minor version, according to the same
// policy.
func checkVersion(image, found string) error {
	if found == "" {
		return fmt.Errorf("%w: %s is no kind node image: it has no /kind/version: choose one with --image, such as %s", ErrImage, image, kinddefaults.Image)
	}
	have, err := version.ParseSemantic(found)
	if err != nil {
		return fmt.Errorf("%w: %s: its /kind/version: %w", ErrImage, image, err)
	}
	pinned := version.MustParseSemantic(components.KubernetesVersion())
	oldest, newest := pinned.Minor(), pinned.Minor()+1
	// kind, too, treats the release candidates of a version as the version before.
	first := version.MustParseSemantic(fmt.Sprintf("%d.%d.0", pinned.Major(), oldest))
	if have.LessThan(first) || have.Major() != pinned.Major() || have.Minor() > newest {
		age := "new"
		if have.LessThan(pinned) {
			age = "old"
		}
		return fmt.Errorf("%w: %s has Kubernetes %s, which is too %s: this fairlead works with %d.%d and %d.%d: choose another --image",
			ErrImage, image, found, age, pinned.Major(), oldest, pinned.Major(), newest)
	}
	return nil
}

// chooseImage returns the node image and the facts about it: the requested image, or else
// the one that this repository builds, or else kind's own, which it pulls if necessary.
func (r *runtime) chooseImage(ctx context.Context, asked string, reporter progress.Reporter) (string, facts, error) {
	image := asked
	if image == "" || image == nodeimage.Name() {
		image = cmp.Or(r.findBuilt(ctx), asked, kinddefaults.Image)
	}
	if !r.hasImage(ctx, image) {
		if err := r.pullNodeImage(ctx, image, asked == "", reporter); err != nil {
			return "", facts{}, err
		}
	}
	f, err := r.look(ctx, image)
	return image, f, err
}

// localhost is Podman's prefix for the names of images that it loads from a Docker archive
// and that name no registry.
const localhost = "localhost/"

// built reports whether an image is the one that this repository builds.
func built(image string) bool { return strings.TrimPrefix(image, localhost) == nodeimage.Name() }

// findBuilt returns the name under which the runtime has that image, or "" if it does not
// have it.
func (r *runtime) findBuilt(ctx context.Context) string {
	names := []string{nodeimage.Name()}
	if r.command == "podman" {
		names = append(names, localhost+nodeimage.Name())
	}
	for _, name := range names {
		if r.hasImage(ctx, name) {
			return name
		}
	}
	return ""
}

func (r *runtime) hasImage(ctx context.Context, image string) bool {
	_, err := r.run(ctx, "image", "inspect", "--format={{.ID}}", r.imageName(image))
	return err == nil
}

// needLoadBalancer pulls the image of the load balancer for several control plane nodes if
// it is missing. kind would pull it as well, but only after the nodes are created, and
// without advice on errors.
func (r *runtime) needLoadBalancer(ctx context.Context, reporter progress.Reporter) error {
	if r.hasImage(ctx, nodeimage.LoadBalancer) {
		return nil
	}
	return r.pull(ctx, "the load balancer's image", nodeimage.LoadBalancer, reporter, func(err error) error {
		return fmt.Errorf("%w: several control planes need the load balancer %s, which is not here and cannot be pulled: %w: \"make node-image\" in the repository makes one without any registry, or choose --control-planes 1",
			ErrNoImage, nodeimage.LoadBalancer, err)
	})
}

func (r *runtime) pullNodeImage(ctx context.Context, image string, byDefault bool, reporter progress.Reporter) error {
	return r.pull(ctx, "node image", image, reporter, func(err error) error {
		if byDefault {
			return fmt.Errorf("%w: neither %s nor %s is here, and the latter cannot be pulled: %w: \"make node-image\" in the repository builds the former without any registry, --image names another one",
				ErrNoImage, nodeimage.Name(), image, err)
		}
		return fmt.Errorf("%w: %s is not here and cannot be pulled: %w: check the name, or leave --image out", ErrNoImage, image, err)
	})
}

// pull is a step that pulls an image; advise adds what to do if that fails.
func (r *runtime) pull(ctx context.Context, what, image string, reporter progress.Reporter, advise func(error) error) error {
	return progress.Step(reporter, "Pulling "+what+" "+image, func() (string, error) {
		_, err := r.run(ctx, "pull", r.imageName(image))
		if err == nil || ctx.Err() != nil {
			return "", err
		}
		return "", advise(err)
	})
}
